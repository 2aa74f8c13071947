// SPDX-License-Identifier: Apache-2.0
// A GPU as an asynchronous Device: a vendor's context, the kernels loaded into it, and its
// allocations. All memory and modules are given back when it goes, also after a fault. On a card
// where a kernel never ends no device gives anything back: each such call would wait for the
// kernel.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/device/async_device.h"
#include "runtime/drivers/gpu/gpu_driver.h"

namespace cleave::runtime {

struct GpuDeviceOptions {
    bool poison = false;  // fill fresh memory with NaN patterns
    // How long a device that is given up may take to end its work: see DeviceStream::settle.
    std::chrono::milliseconds settle_time{10'000};
};

// `ordinal` of the driver; `info` is what the plan says of the device. `info.memory_bytes` is a cap
// below what the card has, as for logical devices that share one.
std::unique_ptr<Device> make_gpu_device(std::shared_ptr<GpuDriver> driver, int ordinal,
                                        const planner::DeviceInfo& info,
                                        const GpuDeviceOptions& options);

}  // namespace cleave::runtime
