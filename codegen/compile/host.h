// SPDX-License-Identifier: Apache-2.0
// Clang for hosts, in this process: compiling, and loading what was compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/compile/backend.h"

namespace cleave::codegen {

// For the CPU that LLVM knows by that name; empty: this machine's. UserError for another name, and
// when libcleave_llvm is missing.
std::unique_ptr<KernelCompiler> make_host_compiler(const std::string& cpu_arch);

// Loaded host code. Owns the memory of the functions; they live as long as it does.
using HostEntry = void (*)(const uint64_t* args, int64_t begin, int64_t end, void* scratch);
class LoadedKernels {
public:
    virtual ~LoadedKernels() = default;
    // Function of compiled kernel i.
    virtual HostEntry entry(size_t i) const = 0;
};
// UserError when they were compiled for a CPU (`cpu_arch`) whose features this machine lacks.
std::unique_ptr<LoadedKernels> load_host_kernels(const std::vector<CompiledKernel>& kernels);

// "x86-64-v4 (znver4, avx512f avx512bw ...)": the CPU that the host compiler targets, and the LLVM
// version.
struct HostCompilerInfo {
    bool available = false;
    std::string reason;  // names tried, when not available
    std::string version;
    std::string cpu;
    std::string features;
};
HostCompilerInfo host_compiler_info();

}  // namespace cleave::codegen
