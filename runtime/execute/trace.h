// SPDX-License-Identifier: Apache-2.0
// Steps as executed, recorded by the drivers at submission and completion, never copied from the
// plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::runtime {

struct TraceEvent {
    int32_t pass = 0;  // which forward pass
    bool is_prefill = true;
    planner::StepId step;  // invalid: the pass whole (SessionOptions::record_passes)
    planner::DeviceId device;
    int64_t start_ns = 0;  // monotonic, since the session began
    int64_t end_ns = 0;
    int64_t bytes = 0;                  // that really crossed into this device; 0 for compute
    std::optional<planner::Path> path;  // what moved them; none for compute
};

struct Trace {
    std::vector<TraceEvent> events;  // by device, then time
};

// Chrome/Perfetto JSON: a track a device. Decode steps that a card's captured graphs stop at have
// "captured": false.
std::string trace_to_perfetto(const Trace& trace, const planner::Plan& plan);

}  // namespace cleave::runtime
