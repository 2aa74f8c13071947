// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/choose.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/compile/amdgpu.h"
#include "codegen/compile/host.h"
#include "codegen/compile/simt.h"
#include "codegen/compile/vendor.h"
#include "runtime/base/environment.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

// A compiler of GPUs, by the name that VendorFacts and users give it.
struct GpuCompiler {
    std::string_view name;
    std::unique_ptr<KernelCompiler> (*make)(const GpuArch&, const CompileOptions&);
    GpuCompilerInfo (*info)(const CompileOptions&);
    const char *title, *purpose, *fix;  // as GpuCompilerInfo has them
};
constexpr GpuCompiler kGpuCompilers[] = {
    {"nvrtc", make_nvrtc_compiler, nvrtc_info, "NVRTC", "kernels for NVIDIA GPUs",
     "install the CUDA toolkit, or PyPI's nvidia-cuda-nvrtc"},
    {"hiprtc", make_hiprtc_compiler, hiprtc_info_with_archs, "hipRTC", "kernels for AMD GPUs",
     "install ROCm's hipRTC, or run tools/setup; without it Clang compiles for AMD GPUs"},
    {"clang", [](const GpuArch& arch, const CompileOptions&) { return make_amdgpu_compiler(arch); },
     [](const CompileOptions&) { return amdgpu_clang_info(); }, "Clang for AMD",
     "AMD GPUs that hipRTC does not know",
     "install LLVM and Clang 19 with AMD GPUs, or run tools/setup"},
};

std::unique_ptr<KernelCompiler> make_named(std::string_view name, const GpuArch& arch,
                                           const CompileOptions& options) {
    const auto* found = std::find_if(std::begin(kGpuCompilers), std::end(kGpuCompilers),
                                     [&](const GpuCompiler& c) { return c.name == name; });
    CLEAVE_CHECK(found != std::end(kGpuCompilers)) << "no GPU compiler is called " << name;
    return found->make(arch, options);
}

// The first of the vendor's that is there and knows the architecture.
std::unique_ptr<KernelCompiler> make_preferred(const GpuArch& arch, const CompileOptions& options) {
    const auto names = planner::vendor_facts(arch.vendor).compilers;
    if (names.size() == 1) return make_named(names.front(), arch, options);
    std::string reasons;
    for (const std::string_view name : names) {
        try {
            return make_named(name, arch, options);
        } catch (const MisnamedCompiler&) {
            throw;
        } catch (const UserError& error) {
            reasons += fmt::format("{}{}", reasons.empty() ? "" : "; and ", error.what());
        }
    }
    throw UserError("no compiler for {}: {}", arch.name, reasons);
}

std::unique_ptr<KernelCompiler> simt_compiler(const GpuArch& arch, const CompileOptions& options) {
    return make_simt_compiler(arch,
                              {.checks = options.simt_checks, .defines = {}, .file_name = {}});
}

}  // namespace

std::unique_ptr<KernelCompiler> make_gpu_compiler(const GpuArch& arch,
                                                  const CompileOptions& options) {
    const std::string& wanted = options.gpu_compiler;
    if (wanted.empty()) return make_preferred(arch, options);
    if (takes_compiler(arch, wanted)) return make_named(wanted, arch, options);
    throw UserError("'{}' compiles nothing for {}; that takes {}", wanted, arch.name,
                    fmt::join(planner::vendor_facts(arch.vendor).compilers, " or "));
}

std::vector<GpuCompilerInfo> gpu_compiler_infos(const CompileOptions& options) {
    std::vector<GpuCompilerInfo> infos;
    for (const GpuCompiler& compiler : kGpuCompilers) {
        GpuCompilerInfo& info = infos.emplace_back(compiler.info(options));
        info.title = compiler.title;
        info.purpose = compiler.purpose;
        info.fix = compiler.fix;
    }
    return infos;
}

bool takes_compiler(const GpuArch& arch, std::string_view name) {
    const auto names = planner::vendor_facts(arch.vendor).compilers;
    return std::find(names.begin(), names.end(), name) != names.end();
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
    if ((options.gpu_compiler.empty() ? environment("CLEAVE_GPU_COMPILER")
                                      : options.gpu_compiler) == "simt")
        return simt_compiler(*arch, options);
    return make_gpu_compiler(*arch, options);
}

}  // namespace cleave::codegen
