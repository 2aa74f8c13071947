// SPDX-License-Identifier: Apache-2.0
// Compiles kernels at run time and caches objects on disk, in parallel: for hosts and AMD GPUs with
// Clang/LLVM 19 in-process (libcleave_llvm), for GPUs also with NVRTC and hipRTC in worker
// processes. Every compiler is opened at its first use; compiling needs no device.
// codegen/compile/compile_program.h has the compilers one by one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernel/program.h"
#include "planner/machine/vendor.h"
#include "runtime/base/cancel.h"

namespace cleave::codegen {

struct CompileOptions {
    std::string cpu_arch;   // "--cpu-arch": an LLVM CPU name; empty: this machine's
    std::string cache_dir;  // empty: $XDG_CACHE_HOME/cleave/kernels or ~/.cache/cleave/kernels
    bool use_cache = true;
    int threads = 0;  // 0: one per core
    bool simt_checks =
        true;  // simt devices find faults of kernels as they run; without, they run faster
    std::function<void(int done, int total)> progress;
    const CancelToken* cancel = nullptr;
    std::string nvrtc;  // "--nvrtc": libnvrtc.so.*, or a folder with it; empty: the usual places
    // The drivers that are to load the objects, by what each says of its version ("12.4"): an NVRTC
    // whose objects its driver cannot load is passed over. None of a vendor: nobody loads them
    // here.
    std::map<planner::Vendor, std::string> drivers;
    // "nvrtc", "hiprtc" or "clang"; empty: the best that is here. "simt": for a driver whose cards
    // the CPU imitates, as tests have one.
    std::string gpu_compiler;
    int timeout_seconds = 600;  // of one kernel in a worker process
};

// Compiles all kernels of a program, in its order. Cache key: source, options, compiler version,
// target; entries are written to a temporary name, then renamed; a damaged entry is recompiled.
// InternalError with log and source when our source does not compile, or when an object needs more
// than its arch has whatever its tile (a smaller one is taken where that helps:
// CompiledKernel::instead, for adopt_compiled); UserError when a compiler is missing (every name
// tried) or does not know the arch.
std::vector<CompiledKernel> compile_program(const Program& program, const CompileOptions& options);

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
