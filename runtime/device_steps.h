// SPDX-License-Identifier: Apache-2.0
// A plan's steps as one device takes them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/bindings.h"
#include "runtime/communicate/communication.h"

namespace cleave::runtime {

// A launch or the device's part of a communication.
struct DeviceStep {
    planner::StepId step;
    BoundLaunch* launch = nullptr;
    Communication* communication = nullptr;

    // For the trace: none of a launch.
    std::optional<planner::Transport> transport() const {
        if (!communication) return std::nullopt;
        return communication->transport();
    }
};

struct DevicePhase {
    std::vector<BoundLaunch> launches;
    std::vector<DeviceStep> steps;
    uint64_t rounds = 0;  // passes of this phase so far
};

}  // namespace cleave::runtime
