// SPDX-License-Identifier: Apache-2.0
#include "codegen/simt_compiler.h"

#include <fmt/format.h>

#include "codegen/llvm_library.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

CompiledKernel compile_simt_kernel(const std::string& source, const std::string& entry, const GpuArch& arch,
                                   const SimtCompileOptions& options) {
    const LlvmLibrary& llvm = llvm_library();
    std::vector<std::string> defines = options.defines;
    defines.push_back(arch_define(arch));
    std::vector<const char*> pointers;
    for (const std::string& define : defines) pointers.push_back(define.c_str());
    cleave_llvm_simt_options lowered{pointers.data(), pointers.size(), arch.warp_width, options.optimization,
                                     options.checks ? 1 : 0};
    std::string file = options.file_name.empty() ? entry + ".cu" : options.file_name;
    cleave_llvm_result result{};
    llvm.simt_compile(source.data(), source.size(), file.c_str(), entry.c_str(), &lowered, &result);
    std::string log = result.log ? result.log : "";
    if (!result.ok) {
        llvm.free_result(&result);
        throw InternalError(fmt::format("kernel {} does not compile for simt:{}\n{}\n---- source\n{}", entry, arch.name,
                                        log, source));
    }
    CompiledKernel compiled;
    compiled.name = entry;
    compiled.compiler = fmt::format("clang {} (in-process), simt:{}", llvm.version(), arch.name);
    const auto* bytes = static_cast<const std::byte*>(result.object);
    compiled.object.assign(bytes, bytes + result.object_size);
    compiled.measured.code_bytes = result.code_bytes;
    compiled.measured.stack_bytes = result.stack_bytes;
    llvm.free_result(&result);
    return compiled;
}

}  // namespace cleave::codegen
