// SPDX-License-Identifier: Apache-2.0
// One interface of every run-time compiler, and the loop that drives any of them: a cache on disk,
// threads, progress, cancelling. In: kernels (source text); out: objects with the resources that
// they themselves report. Implementations: Clang for the host and for the CPU's imitation of GPUs
// (in-process), Clang for AMD GPUs (in-process), NVRTC and hipRTC (vendor libraries in a worker
// process, codegen/compile/worker_pool.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/compile/compiler.h"
#include "codegen/kernel/occupancy.h"
#include "codegen/kernel/program.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

// For one target, which is fixed when it is made. Thread-safe: kernels compile side by side.
class KernelCompiler {
public:
    virtual ~KernelCompiler() = default;

    // "clang 19.1.7 (in-process), znver4", "NVRTC 13.0 (libnvrtc.so.13), sm_90a": what
    // CompiledKernel::compiler says.
    virtual std::string name() const = 0;

    // All that an object depends on beside the kernel's source: compiler, version, options, target.
    virtual std::string key() const = 0;

    // InternalError with the compiler's log and the source, whose file is named after the kernel,
    // when it does not compile. `measured` holds what the object alone says: shared memory without
    // the launch's dynamic part.
    virtual CompiledKernel compile(const Kernel& kernel) const = 0;
};

std::unique_ptr<KernelCompiler> make_host_compiler(const CompileOptions& options);

// Of what the user named, and what is not there: no other compiler takes its place.
class MisnamedCompiler : public UserError {
public:
    using UserError::UserError;
};

// Of real GPUs. UserError listing every name tried when the library is missing, and naming the arch
// when the library is there but does not know it. NVRTC: the first library found whose objects the
// driver loads (`options.drivers`); UserError with the driver's version and those found where
// it loads none's.
std::unique_ptr<KernelCompiler> make_nvrtc_compiler(const GpuArch& arch,
                                                    const CompileOptions& options);
std::unique_ptr<KernelCompiler> make_hiprtc_compiler(const GpuArch& arch,
                                                     const CompileOptions& options);
std::unique_ptr<KernelCompiler> make_amdgpu_compiler(const GpuArch& arch);

// sm_*: NVRTC. gfx*: hipRTC where it is found and knows the arch, else Clang.
// `options.gpu_compiler` names another.
std::unique_ptr<KernelCompiler> make_gpu_compiler(const GpuArch& arch,
                                                  const CompileOptions& options);

// Whether that is one of the vendor's compilers for the architecture (VendorFacts::compilers).
bool takes_compiler(const GpuArch& arch, std::string_view name);

// Of the machine that Cleave runs on, for `cleave doctor`: which library, or the names tried.
struct GpuCompilerInfo {
    std::string title, purpose, fix;  // "NVRTC"; what for; what to do where it is not available
    bool available = false;
    std::string name;      // "NVRTC 13.0"
    std::string library;   // as it was opened
    std::string path;      // of its file, where known
    std::string archs;     // that it knows, where it can say: "sm_75 sm_80 ..."
    std::string reason;    // when it is not available
    std::string misnamed;  // when what the user named is the reason: "CLEAVE_NVRTC=/opt/none: ..."
    std::vector<std::string> tried;
    std::vector<std::string>
        passed_over;  // "NVRTC 13.0 (/opt/libnvrtc.so.13)", newer than the driver
};
GpuCompilerInfo nvrtc_info(const CompileOptions& options);
GpuCompilerInfo hiprtc_info(const CompileOptions& options);
GpuCompilerInfo amdgpu_clang_info();
// With the architectures that Cleave has kernels for and this hipRTC knows. Each is asked with an
// empty kernel, once a version.
GpuCompilerInfo hiprtc_info_with_archs(const CompileOptions& options);
// Of every compiler of GPUs.
std::vector<GpuCompilerInfo> gpu_compiler_infos(const CompileOptions& options);

// Compiles all kernels of a program, in its order: from the cache where they are, by several
// threads where not. The first failure stops the others and reaches the caller. For a GPU (`arch`
// not null) a kernel whose object is over a limit is compiled again with smaller tiles until one is
// within; InternalError naming kernel, resource, need and limit when none is. One that spills
// registers is too, for three tiles at most; the fewest spills win.
std::vector<CompiledKernel> compile_kernels(const KernelCompiler& compiler, const Program& program,
                                            const CompileOptions& options,
                                            const GpuArch* arch = nullptr);

// What a GPU's object says of itself, against the device's limits and the arch's, the smaller of
// each: resource, need and limit where it is over one, else empty. The tile's arithmetic has kept
// to the limits before; this is the second look, with the compiler's own numbers.
std::string over_limit(const Kernel& kernel, const CompiledKernel& compiled, const GpuArch& arch,
                       const planner::DeviceLimits& device = {});

// "kernel NAME does not compile for TARGET", the log, the source.
[[noreturn]] void throw_does_not_compile(const Kernel& kernel, const std::string& target,
                                         const std::string& log);

}  // namespace cleave::codegen
