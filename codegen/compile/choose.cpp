// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/choose.h"

#include <cstdlib>

#include <fmt/format.h>

#include "codegen/compile/amdgpu.h"
#include "codegen/compile/host.h"
#include "codegen/compile/simt.h"
#include "codegen/compile/vendor.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

std::unique_ptr<KernelCompiler> hiprtc_or_clang(const GpuArch& arch,
                                                const CompileOptions& options) {
    std::string no_hiprtc;
    try {
        return make_hiprtc_compiler(arch, options);
    } catch (const MisnamedCompiler&) {
        throw;
    } catch (const UserError& error) {
        no_hiprtc = error.what();
    }
    try {
        return make_amdgpu_compiler(arch);
    } catch (const UserError& error) {
        throw UserError("no compiler for {}: {}; and {}", arch.name, no_hiprtc, error.what());
    }
}

std::unique_ptr<KernelCompiler> simt_compiler(const GpuArch& arch, const CompileOptions& options) {
    return make_simt_compiler(arch,
                              {.checks = options.simt_checks, .defines = {}, .file_name = {}});
}

}  // namespace

std::unique_ptr<KernelCompiler> make_gpu_compiler(const GpuArch& arch,
                                                  const CompileOptions& options) {
    const std::string& wanted = options.gpu_compiler;
    if (arch.nvidia && (wanted.empty() || wanted == "nvrtc"))
        return make_nvrtc_compiler(arch, options);
    if (!arch.nvidia && wanted.empty()) return hiprtc_or_clang(arch, options);
    if (!arch.nvidia && wanted == "hiprtc") return make_hiprtc_compiler(arch, options);
    if (!arch.nvidia && wanted == "clang") return make_amdgpu_compiler(arch);
    throw UserError("'{}' compiles nothing for {}; that takes {}", wanted, arch.name,
                    arch.nvidia ? "nvrtc" : "hiprtc or clang");
}

std::unique_ptr<KernelCompiler> choose_compiler(const std::string& program_arch,
                                                const CompileOptions& options) {
    if (std::string_view arch = simt_arch_of(program_arch); !arch.empty()) {
        const std::string& wanted = options.gpu_compiler;
        if (wanted == "nvrtc" || wanted == "hiprtc")
            throw UserError("'{}' compiles nothing for {}, which runs on the CPU; that takes clang",
                            wanted, program_arch);
        return simt_compiler(gpu_arch(arch), options);
    }
    const GpuArch* arch = find_gpu_arch(program_arch);
    if (!arch) return make_host_compiler(options.cpu_arch);
    // For what has no such flag: tools/gpu-check on the fakes of the vendors' drivers.
    const char* chosen = std::getenv("CLEAVE_GPU_COMPILER");
    if ((options.gpu_compiler.empty() && chosen ? chosen : options.gpu_compiler) == "simt")
        return simt_compiler(*arch, options);
    return make_gpu_compiler(*arch, options);
}

}  // namespace cleave::codegen
