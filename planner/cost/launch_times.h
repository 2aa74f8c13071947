// SPDX-License-Identifier: Apache-2.0
// What a launch costs on a device: on GPUs the fitted times of kernel_times.h at the device's
// catalogue rates, on hosts a roofline (Williams, Waterman and Patterson, CACM 2009) over the rates
// that `cleave devices --measure` found, or over shares of estimated peaks. In: a group of the
// analysis and the amounts of a piece of it. Out: ns alone on the device, and a floor below any
// division of the group. One object serves one thread: it remembers what it computed.
#pragma once

#include <array>
#include <optional>

#include "planner/analysis/work.h"
#include "planner/cost/kernel_times.h"

namespace cleave::planner {

class LaunchCosts {
public:
    LaunchCosts(const Analysis& analysis, const Machine& machine, const Workload& workload);

    // `fixed_ns` of `ns` is launching, which neighbours on the same memory do not slow.
    struct Time {
        int64_t ns = 0, fixed_ns = 0;
    };
    // A piece of `group` of the analysis with these amounts. `host_width`: host devices in the
    // stage, which share the threads. With the launch that prepares the activations, where `path`
    // is kPrepared; without a path, where the tiles would most likely make it that.
    Time time(DeviceId device, size_t group, const LaunchAmounts& amounts, bool is_prefill,
              size_t host_width, std::optional<ActivationPath> path = {}) const;

    // Any piece that is a share x of the group takes overhead + x * work or more, and x * alone or
    // more, with or without a launch in front.
    struct Floor {
        double overhead = 0, work = 0, alone = 0;
    };
    Floor floor(DeviceId device, size_t group, bool is_prefill) const;

    const PassPoint& point(bool is_prefill) const { return is_prefill ? prefill_ : decode_; }

private:
    // What of a group does not depend on the piece.
    struct Facts {
        enum class Kind : uint8_t { kOther, kProduct, kAttention } kind = Kind::kOther;
        DType dtype = DType::kF32;     // of the largest matrix
        bool cut_in_depth = false;     // a product whose input features are split
        bool of_outputs = false;       // a product of the tokens whose logits are wanted
        bool begins = false;           // nothing comes before the product
        int64_t depth = 0, width = 0;  // of the whole product: in and out features
        int64_t heads = 0, kv_heads = 0, key_flops = 0, kv_head_bytes = 0;  // attention
    };
    struct Remembered {
        uint64_t device = UINT64_MAX, group = 0;
        int64_t flops = 0, bytes = 0;
        Time time;
    };

    Facts facts_of(const FusedGroup& group, const Workload& workload) const;
    bool is_gpu(const DeviceInfo& device) const;
    double gpu_ns(const DeviceInfo& device, const Facts& facts, int64_t flops, int64_t bytes,
                  bool is_prefill, KernelPoint point) const;
    KernelPoint product_point(const Facts& facts, int64_t flops, bool is_prefill) const;
    KernelPoint attention_point(double heads, double kv_heads, bool is_prefill) const;
    Time launch_time(DeviceId device, size_t group, const LaunchAmounts& amounts, bool is_prefill,
                     size_t host_width) const;
    // Of the launch in front of a piece of a prompt's product: it reads the activations once and
    // writes them in 16 bits, so it takes launch + rows * depth * (activation bytes + 2) /
    // bandwidth.
    Time preparation(const DeviceInfo& device, const Facts& facts, const KernelPoint& point) const;
    bool prepares(DeviceId device, const Facts& facts, const KernelPoint& point) const;
    double product_rate(const MeasuredRates& measured, DType weights, bool few) const;
    Time host_time(const DeviceInfo& device, const Facts& facts, const LaunchAmounts& amounts,
                   bool is_prefill, size_t host_width) const;
    double resident(const DeviceInfo& device) const;
    int64_t gpu_bytes(const Facts& facts, const LaunchAmounts& amounts, bool is_prefill) const;
    Floor product_floor(const DeviceInfo& device, const Facts& facts, const LaunchAmounts& whole,
                        bool is_prefill) const;
    Floor attention_floor(const DeviceInfo& device, const Facts& facts, const LaunchAmounts& whole,
                          bool is_prefill) const;

    const Analysis& analysis_;
    const Machine& machine_;
    Workload workload_;
    PassPoint decode_, prefill_;
    double decode_sequences_ = 1, prefill_sequences_ = 1;
    std::vector<Facts> facts_;  // by group
    std::vector<bool> copies_;  // asynchronously, by device
    double read_per_token_ =
        0;  // bytes of weights and keys that a decode pass reads, of the whole model
    mutable std::array<Remembered, 256> remembered_;
};

// dtype of the largest matrix of a group, f32 where it has none.
DType compute_dtype(const Analysis& analysis, const FusedGroup& group, const Workload& workload);

}  // namespace cleave::planner
