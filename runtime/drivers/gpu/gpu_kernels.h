// SPDX-License-Identifier: Apache-2.0
// The kernels of one GPU's device as its driver has loaded them: code objects in, launches out. A
// kernel that the driver refuses is a DeviceError with the kernel's name. Used by the device's
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel/program.h"
#include "planner/machine/machine.h"
#include "runtime/drivers/gpu/gpu_driver.h"
#include "runtime/drivers/gpu/gpu_waits.h"

namespace cleave::runtime {

class GpuKernels {
public:
    // All outlive it.
    GpuKernels(const GpuDriver& driver, GpuContext& context, GpuWaits& waits,
               const planner::DeviceInfo& info)
        : driver_(driver), context_(context), waits_(waits), info_(info) {}

    // As Device's. To load a kernel may wait for all that runs on the card.
    void load(std::vector<codegen::CompiledKernel> kernels);
    void expect_launch(int kernel, const codegen::Launch& launch);
    void launch(int kernel, std::span<const uint64_t> args, const std::array<int64_t, 3>& grid,
                const codegen::Launch& launch);

    // The owner calls it while its context lives.
    void unload() noexcept;

private:
    struct Loaded {
        std::string name;
        GpuModule module = nullptr;
        GpuFunction function = nullptr;
        int64_t shared_bytes = 0;  // that it was allowed
    };
    Loaded& kernel_of(int kernel);
    void allow(Loaded& kernel, const codegen::Launch& launch);
    VendorError refusal(const codegen::CompiledKernel& kernel, const std::string& why) const;

    const GpuDriver& driver_;
    GpuContext& context_;
    GpuWaits& waits_;
    const planner::DeviceInfo& info_;
    std::vector<Loaded> kernels_;
    std::vector<uint64_t> words_;
    std::vector<void*> pointers_;
};

}  // namespace cleave::runtime
