// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile/simt.h"

#include <utility>

#include <fmt/format.h>

#include "codegen/compile/llvm/simt_record.h"
#include "codegen/compile/llvm_library.h"
#include "codegen/text/templates.h"
#include "runtime/base/hash.h"

namespace cleave::codegen {

CompiledKernel compile_simt_kernel(const std::string& source, const std::string& entry,
                                   const GpuArch& arch, const SimtCompileOptions& options) {
    const LlvmLibrary& llvm = llvm_library();
    std::vector<std::string> defines = options.defines;
    for (std::string& define : arch_defines(arch)) defines.push_back(std::move(define));
    std::vector<const char*> pointers;
    for (const std::string& define : defines) pointers.push_back(define.c_str());
    const TemplatePart templates = find_templates(source);
    cleave_llvm_simt_options lowered{pointers.data(),       pointers.size(),        arch.warp_width,
                                     options.optimization,  options.checks ? 1 : 0, templates.begin,
                                     templates.prelude_end, templates.end};
    std::string file = options.file_name.empty() ? entry + ".cu" : options.file_name;
    LlvmResult result(llvm);
    llvm.simt_compile(source.data(), source.size(), file.c_str(), entry.c_str(), &lowered,
                      result.out());
    CompiledKernel compiled = result.take(entry, fmt::format("simt:{}", arch.name), source);
    compiled.compiler = fmt::format("clang {} (in-process), simt:{}", llvm.version(), arch.name);
    return compiled;
}

namespace {

class SimtCompiler final : public KernelCompiler {
public:
    SimtCompiler(const GpuArch& arch, SimtCompileOptions options)
        : arch_(arch), options_(std::move(options)) {}

    std::string name() const override {
        return fmt::format("clang {} (in-process), simt:{}", llvm_library().version(), arch_.name);
    }

    // The record's version stands for the passes and the prelude's calls.
    std::string key() const override {
        const LlvmLibrary& llvm = llvm_library();
        Digest digest;
        digest.add(std::string_view(llvm.version()))
            .add(std::string_view(llvm.host_cpu()))
            .add(std::string_view(llvm.host_features()))
            .add(std::string_view(fmt::format("simt {} {} O{} {}", kSimtRecordVersion, arch_.name,
                                              options_.optimization, options_.checks)));
        for (const std::string& define : options_.defines) digest.add(std::string_view(define));
        return digest.hex();
    }

    CompiledKernel compile(const Kernel& kernel) const override {
        return compile_simt_kernel(kernel.source, kernel.name, arch_, options_);
    }

    const GpuArch* limits() const override { return &arch_; }

private:
    const GpuArch& arch_;
    SimtCompileOptions options_;
};

}  // namespace

std::unique_ptr<KernelCompiler> make_simt_compiler(const GpuArch& arch,
                                                   SimtCompileOptions options) {
    return std::make_unique<SimtCompiler>(arch, std::move(options));
}

}  // namespace cleave::codegen
