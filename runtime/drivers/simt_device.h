// SPDX-License-Identifier: Apache-2.0
// The simt driver: a GPU of some architecture, imitated by the CPU (runtime/simt). Synchronous,
// like the host driver. A fault that a checked kernel shows is an InternalError with kernel, line,
// block and thread: kernels are ours.
#pragma once

#include <memory>

#include "runtime/device/device.h"

namespace cleave::runtime {

struct SimtDeviceOptions {
    int threads = 1;             // OS threads that run blocks side by side
    bool poison = false;         // fill fresh memory with NaN patterns
    uint64_t seed = 0;           // of the order in which threads run
    bool shuffle_order = false;  // in that order, instead of by index
};

// `info.arch` names the architecture; UserError when codegen/kernel/occupancy.h has none of that
// name.
std::unique_ptr<Device> make_simt_device(const planner::DeviceInfo& info,
                                         const SimtDeviceOptions& options);

}  // namespace cleave::runtime
