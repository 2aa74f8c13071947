// SPDX-License-Identifier: Apache-2.0
// The host driver: a share of the CPU with memory and threads of its own. Everything is
// synchronous: each call has taken effect when it returns. A launch splits its work items into one
// contiguous part a thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "codegen/compile/host.h"
#include "runtime/device/device.h"

namespace cleave::runtime {

// Turns compiled kernels into functions; codegen::load_host_kernels, or a test's own.
using KernelLoader = std::function<std::unique_ptr<codegen::LoadedKernels>(
    const std::vector<codegen::CompiledKernel>&)>;

struct HostDeviceOptions {
    int threads = 1;      // of this device, the worker included
    bool poison = false;  // fill fresh memory with NaN patterns
    // Waiting threads may poll briefly: the process has no more threads than cores.
    bool may_spin = false;
};
std::unique_ptr<Device> make_host_device(const planner::DeviceInfo& info,
                                         const HostDeviceOptions& options,
                                         KernelLoader loader = codegen::load_host_kernels);

}  // namespace cleave::runtime
