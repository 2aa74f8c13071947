// SPDX-License-Identifier: Apache-2.0
// A plan's steps as one device takes them, and the batch's arrays as it gets them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/exchange/communication.h"
#include "runtime/execute/batch.h"
#include "runtime/load/bindings.h"

namespace cleave::runtime {

// A launch, with the one that prepares its activations where there is one, or the device's part of
// a communication.
struct DeviceStep {
    planner::StepId step;
    BoundLaunch* launch = nullptr;
    Communication* communication = nullptr;
    BoundLaunch* preparation = nullptr;

    void take_launches(Device& device, const PassShape& shape) const {
        if (preparation) runtime::launch(device, *preparation, shape);
        runtime::launch(device, *launch, shape);
    }

    // For the trace: none of a launch.
    std::optional<planner::Path> path() const {
        if (!communication) return std::nullopt;
        return communication->path();
    }
};

struct DevicePhase {
    std::vector<BoundLaunch> launches;
    std::optional<BoundLaunch> greedy;  // of the output device that chooses tokens itself
    std::vector<DeviceStep> steps;      // the plan's; behind them `greedy`, whose step is none
    uint64_t rounds = 0;                // passes of this phase so far

    // Of a pass that gives tokens (`greedily`) or logits.
    size_t num_steps(bool greedily) const { return steps.size() - (greedy && !greedily ? 1 : 0); }
};

inline PassShape shape_of(const Batch& batch) {
    PassShape shape{batch.num_tokens(), batch.num_outputs(), batch.num_sequences()};
    const auto& starts = batch.sequence_starts;
    while (shape.num_singles < shape.num_sequences &&
           starts[static_cast<size_t>(shape.num_singles) + 1] == shape.num_singles + 1)
        ++shape.num_singles;
    return shape;
}

// The arrays of a batch and where they go.
struct BatchArray {
    DeviceAddress address;
    std::span<const std::byte> bytes;
};
inline std::array<BatchArray, 5> arrays_of(const Batch& batch, const BatchAddresses& to) {
    const auto bytes = [](const std::vector<int32_t>& v) { return std::as_bytes(std::span(v)); };
    return {{{to.token_ids, bytes(batch.token_ids)},
             {to.positions, bytes(batch.positions)},
             {to.slots, bytes(batch.slots)},
             {to.sequence_starts, bytes(batch.sequence_starts)},
             {to.output_rows, bytes(batch.output_rows)}}};
}

}  // namespace cleave::runtime
