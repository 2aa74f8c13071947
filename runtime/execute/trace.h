// SPDX-License-Identifier: Apache-2.0
// Steps as executed, recorded by the drivers at submission and completion, never copied from the
// plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/execute/batch.h"

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

// How large a pass was.
struct TracePass {
    int32_t number = 0;
    bool is_prefill = true;
    int64_t tokens = 0, outputs = 0;
    int64_t keys = 0;  // summed over tokens: those that each sees
};
TracePass size_of_pass(int32_t number, const Batch& batch);

struct Trace {
    std::vector<TraceEvent> events;  // by device, then time
    std::vector<TracePass> passes;   // by number
    // Of a run on several hosts, by rank: its times, by rank 0's clock, are off by this at most.
    std::vector<int64_t> clock_errors_ns = {};
};

class PredictedPasses;

// Chrome/Perfetto JSON: a track a device. An event's arguments have the step's id, the value that
// it makes, its bytes at its pass's size, with `predicted` its predicted time; "received_bytes"
// came. Flows go from a transfer's source to its destination, and from the member of a collective
// that came last to those that waited for it. Decode steps that a card's captured graphs stop at
// have "captured": false. "otherData" has the plan's digest, the size of each pass, and of a run on
// several hosts by rank what its clock may be off from rank 0's ("clock_error_us").
std::string trace_to_perfetto(const Trace& trace, const planner::Plan& plan,
                              PredictedPasses* predicted = nullptr);

// The same of all replicas of a plan: a process each ("pid"), each pass with its "replica", and
// "replicas", the devices of each.
struct ReplicaTrace {
    const Trace* trace = nullptr;
    const planner::Plan* plan = nullptr;
    int64_t later_ns = 0;  // that its clock began after the first replica's
};
std::string trace_to_perfetto(std::span<const ReplicaTrace> replicas, PredictedPasses* predicted);

// Of what the steps of a trace mean: the model, its types, the devices, and every step of the plan
// with its devices, operators and path. Times and sizes of the workload do not count.
std::string trace_digest(const planner::Plan& plan);

}  // namespace cleave::runtime
