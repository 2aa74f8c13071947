// SPDX-License-Identifier: Apache-2.0
// What GPUs reach of their peaks beside the H200 that kernel_times.h is fitted to: factors of its
// efficiencies and of its launch latency, by architecture, and by model where its memory differs.
// They are the best that engines of others were seen to reach; without a row all are 1.
#pragma once

#include <array>
#include <string_view>

#include "planner/machine/machine.h"

namespace cleave::planner {

struct Reached {
    std::string_view arch, model;  // `model`: a part of the device's; empty: any
    double bandwidth = 1, latency = 1;
    // Of all-reduces over the cards' own links: by the curves of which device (SumTimes::of), and
    // their latency to its.
    std::string_view sums = "h200";
    double sum_latency = 1;
    std::string_view source;
};

// clang-format off
// The H200 reaches 0.77 of its bandwidth.
inline constexpr std::array kReached{
    Reached{"sm_89", "4090", 1.19, 1, "h200", 1, "zeux/calm: 0.92 to 0.97 of the bandwidth in decode"},
    Reached{"sm_80", "", 0.89, 1, "a100-80", 1, "pytorch-labs/gpt-fast: 0.69; ai-dynamo/aiconfigurator: GEMMs of few rows take 1.12 to 1.18 of the time"},
    Reached{"sm_100", "gb200", 1, 1, "gb200", 1, "ai-dynamo/aiconfigurator: sums of vLLM"},
    Reached{"sm_100", "", 1, 1, "b200", 1, "ai-dynamo/aiconfigurator: sums of vLLM; TensorRT-LLM's take 0.7 of the time"},
    Reached{"gfx90a", "", 0.82, 1, "h200", 1, "pytorch-labs/gpt-fast, one die of an MI250X: 0.63"},
    Reached{"gfx942", "", 0.82, 2, "h200", 0.7, "ROCm/vllm, MI300X: 37 us a layer more at batch 1; vllm#39080: sums in 0.75 of the time"},
    Reached{"gfx950", "", 0.82, 2, "h200", 0.75, "as gfx942; vllm#39080, MI355X: sums in 0.75 of the time"},
};
// clang-format on

inline const Reached& reached_by(const DeviceInfo& device) {
    static constexpr Reached kAsFitted{};
    for (const Reached& row : kReached)
        if (device.arch == row.arch && device.model.find(row.model) != std::string::npos)
            return row;
    return kAsFitted;
}

// A quantised weight becomes f16 by arithmetic of the f32 units, so many operations an element. On
// an A100 that, not memory, bounds decode of 4-bit weights: gpt-fast reads 850 GB/s of them.
constexpr double kUnpackOperations = 11.5;

}  // namespace cleave::planner
