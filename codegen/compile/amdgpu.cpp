// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/amdgpu.h"

#include <fmt/format.h>

#include "codegen/compile/gpu_objects.h"
#include "codegen/compile/llvm_library.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

class AmdgpuCompiler final : public KernelCompiler {
public:
    explicit AmdgpuCompiler(const GpuArch& arch) : llvm_(llvm_library()), arch_(arch) {
        if (!llvm_.knows_amdgpu(std::string(arch.name).c_str()))
            throw UserError("LLVM {} knows no AMD GPU '{}'", llvm_.version(), arch.name);
    }

    std::string name() const override {
        return fmt::format("clang {} (in-process), {}", llvm_.version(), arch_.name);
    }

    std::string key() const override {
        return fmt::format("amdgpu {} {} {}", llvm_.version(), arch_.name, llvm_.amdgpu_options());
    }

    CompiledKernel compile(const Kernel& kernel) const override {
        const std::string arch(arch_.name);
        LlvmResult result(llvm_);
        llvm_.amdgpu_compile(kernel.source.data(), kernel.source.size(),
                             (kernel.name + ".hip").c_str(), arch.c_str(), result.out());
        CompiledKernel compiled = result.take(kernel.name, arch, kernel.source);
        compiled.compiler = name();
        measure_code_object(compiled, arch_);
        return compiled;
    }

    const GpuArch* limits() const override { return &arch_; }

private:
    const LlvmLibrary& llvm_;
    const GpuArch& arch_;
};

}  // namespace

GpuCompilerInfo amdgpu_clang_info() {
    GpuCompilerInfo info;
    info.tried = llvm_library_names();
    const LlvmLibrary& llvm = find_llvm_library();
    info.reason = llvm.reason;
    if (!llvm.available) return info;
    info.name = fmt::format("Clang {}", llvm.version());
    for (const GpuArch& arch : gpu_archs())
        if (takes_compiler(arch, "clang") && llvm.knows_amdgpu(std::string(arch.name).c_str()))
            info.archs += (info.archs.empty() ? "" : " ") + std::string(arch.name);
    info.available = !info.archs.empty();
    if (!info.available) info.reason = info.name + " is built without AMD GPUs";
    return info;
}

std::unique_ptr<KernelCompiler> make_amdgpu_compiler(const GpuArch& arch) {
    return std::make_unique<AmdgpuCompiler>(arch);
}

}  // namespace cleave::codegen
