// SPDX-License-Identifier: Apache-2.0
// Compiles GPU source for the CPU, through libcleave_llvm. The object's one symbol is `ENTRY.simt`
// (codegen/compile/llvm/simt_record.h); runtime/simt loads and runs it. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/compile/backend.h"

namespace cleave::codegen {

struct SimtCompileOptions {
    int optimization = 1;              // 0-3; 1: fastest to compile for what it gives
    bool checks = true;                // instrument every access to memory
    std::vector<std::string> defines;  // further "NAME=VALUE"
    std::string file_name;             // in diagnostics; empty: the entry's name
};

// InternalError with the compiler's log and the source when it does not compile; UserError when
// libcleave_llvm is missing. `measured.shared_bytes` is the static part alone.
CompiledKernel compile_simt_kernel(const std::string& source, const std::string& entry,
                                   const GpuArch& arch, const SimtCompileOptions& options);

// The same as a compiler that drive.h drives.
std::unique_ptr<KernelCompiler> make_simt_compiler(const GpuArch& arch, SimtCompileOptions options);

}  // namespace cleave::codegen
