// SPDX-License-Identifier: Apache-2.0
// What a card reaches with nothing of a model: the rates that `tools/bench gpu` states its figures as shares of. All times are
// between two events of the device, but PyTorch's, which it takes likewise.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/compiler.h"
#include "runtime/device.h"

namespace cleave::bench {

class Card {
public:
    // The first device of `machine`, a cuda or hip one.
    Card(const planner::Machine& machine, const codegen::CompileOptions& compile);

    // Bytes read and written a second by a kernel that copies `bytes`, or a quarter of the memory that is free.
    double copy_bandwidth(int64_t bytes);
    // Milliseconds of a launch in a replayed graph of so many kernels that copy 128 bytes each: the launch and a kernel of almost
    // no work.
    double empty_launch_ms(int64_t launches);

private:
    void launch(runtime::DeviceAddress from, runtime::DeviceAddress to, int kernel, int64_t rows);
    // Milliseconds of `work`, the middle of several times.
    template <class Work>
    double time(Work work);

    std::unique_ptr<runtime::Device> device_;
    codegen::Program program_;
};

// What PyTorch's matmul of 8192 x 8192 in bf16 and its copy of `copy_bytes` reach on the same card; 0 with the reason where there
// is no such PyTorch.
struct TorchRates {
    double matmul_flops = 0;
    double copy_bytes_per_second = 0;
    std::string reason;
};
// `own_settings`: the variables that PyTorch must not see.
TorchRates torch_rates(const std::string& python, int card, int64_t copy_bytes,
                       const std::vector<std::string>& own_settings);

// The drivers' variables that the user has not set: those that Cleave may. Ask before a driver is opened.
std::vector<std::string> unset_driver_variables();

double middle(std::vector<double> values);

}  // namespace cleave::bench
