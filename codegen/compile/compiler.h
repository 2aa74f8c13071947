// SPDX-License-Identifier: Apache-2.0
// Compiles Programs at run time: for hosts and AMD GPUs with Clang/LLVM 19 in-process
// (libcleave_llvm), for GPUs also with NVRTC and hipRTC in worker processes. In: Programs as
// generated; out: Programs whose kernels are those that were compiled, each with its object. Every
// compiler is opened at its first use; compiling needs no device.
#pragma once

#include <functional>
#include <map>
#include <span>
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
    // simt devices find faults of kernels as they run; without, they run faster.
    bool simt_checks = true;
    // Hosts: a sequence's logits have the same bits alone, in any company and in chunks of any
    // size. Decode of up to 8 tokens a pass is slower (templates/host/README.md). Products that
    // quantise their activations by the whole pass cannot have that. GPUs: decode's bits do not
    // depend on a sequence's company, as each pass takes the kernels of the whole batch; prefill's
    // may.
    bool reproducible = false;
    std::function<void(int done, int total)> progress;  // of the kernels of one target
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
    // Of compile_plan: whether the Program of each device of the plan is wanted; empty: of all.
    std::vector<bool> devices;
};

struct CompiledProgram {
    // As generated, but for kernels whose objects were over a limit or spilled: those have the
    // smaller tile that was taken (codegen/generate.h writes it into the plan).
    Program program;
    std::vector<CompiledKernel> objects;  // of program.kernels, in order
};

// Compiles each distinct kernel of each target once. Cache key: source, options, compiler version,
// target; entries are written to a temporary name, then renamed; a damaged entry is recompiled. The
// first failure stops the rest and reaches the caller: InternalError with log and source when our
// source does not compile, or with need and limit when an object needs more than its device has
// with every tile; UserError when a compiler is missing (every name tried) or does not know the
// arch; Cancelled.
std::vector<CompiledProgram> compile(std::span<const Program> programs,
                                     const CompileOptions& options);
CompiledProgram compile(const Program& program, const CompileOptions& options);

}  // namespace cleave::codegen
