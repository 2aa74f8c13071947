// SPDX-License-Identifier: Apache-2.0
// What every run-time compiler implements. In: a kernel's source text; out: its object, with the
// resources that the object itself reports. Implementations: host.h, simt.h and amdgpu.h (Clang
// in-process), vendor.h (NVRTC and hipRTC in worker processes). drive.h calls them, choose.h says
// which compiles for which device.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/kernel/occupancy.h"
#include "codegen/kernel/program.h"

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

    // InternalError by throw_does_not_compile. `measured` holds what the object alone says: shared
    // memory without the launch's dynamic part.
    virtual CompiledKernel compile(const Kernel& kernel) const = 0;

    // The architecture whose limits its objects must keep; null for hosts.
    virtual const GpuArch* limits() const { return nullptr; }
};

// Whether that is one of the vendor's compilers for the architecture (VendorFacts::compilers).
bool takes_compiler(const GpuArch& arch, std::string_view name);

// InternalError "kernel ENTRY does not compile for TARGET", the log, the source.
[[noreturn]] void throw_does_not_compile(std::string_view entry, std::string_view target,
                                         std::string_view log, std::string_view source);

// A compiler of GPUs on the machine that Cleave runs on, for `cleave doctor`: which library, or the
// names tried.
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
    // "NVRTC 13.0 (/opt/libnvrtc.so.13)", newer than the driver.
    std::vector<std::string> passed_over;
};

}  // namespace cleave::codegen
