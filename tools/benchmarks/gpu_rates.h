// SPDX-License-Identifier: Apache-2.0
// What a card reaches with nothing of a model: the rates that `tools/bench gpu` states its figures
// as shares of. All times are between two events of the device, but PyTorch's, which it takes
// likewise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/compile/compiler.h"
#include "runtime/cards/drivers.h"
#include "runtime/device/device.h"

namespace cleave::bench {

class Card {
public:
    // The first device of `machine`, a cuda or hip one.
    Card(const planner::Machine& machine, runtime::Drivers& drivers,
         const codegen::CompileOptions& compile);

    struct Copies {
        int64_t bytes = 0;              // that each reads, and writes
        double kernel = 0, driver = 0;  // bytes read and written a second
        double fastest() const { return std::max(kernel, driver); }
    };
    // Copies of `bytes`, or of a quarter of the memory that is free where that is less: by a kernel
    // of ours, and by the driver's own copy within a card. The fastest of several counts: it is
    // what figures are shares of.
    Copies copy_bandwidth(int64_t bytes);
    // Milliseconds of a launch in a replayed graph of so many kernels that copy 128 bytes each: the
    // launch and a kernel of almost no work.
    double empty_launch_ms(int64_t launches);

private:
    void launch(runtime::DeviceAddress from, runtime::DeviceAddress to, int kernel, int64_t rows);
    // Milliseconds of `work`, several times, after the card has done it for long enough to be at
    // its clocks.
    template <class Work>
    std::vector<double> times(Work work);

    std::unique_ptr<runtime::Device> device_;
    codegen::Program program_;
};

// What PyTorch reaches on the same card. Without such a PyTorch: nothing, with the reason;
// `copy_reason`: why it copied nothing.
struct TorchRates {
    double square_flops = 0;  // matmul of 8192 x 8192 in bf16
    double model_flops = 0;   // of the model's own products, one layer's after another
    double copy_bytes_per_second = 0;
    std::string version, reason, copy_reason;
    double matmul_flops() const { return std::max(square_flops, model_flops); }
};

struct TorchWork {
    std::string card_name;  // as its driver says: PyTorch may number cards otherwise
    int card = 0;
    int64_t copy_bytes = 0;
    int64_t tokens = 0;                                 // of the products
    std::vector<std::pair<int64_t, int64_t>> products;  // inputs and outputs of a layer's weights
};
// `own_settings`: the variables that PyTorch must not see.
TorchRates torch_rates(const std::string& python, const TorchWork& work,
                       const std::vector<std::string>& own_settings);

// The drivers' variables that the user has not set: those that Cleave may. Ask before a driver is
// opened.
std::vector<std::string> unset_driver_variables();

double middle(std::vector<double> values);

}  // namespace cleave::bench
