// SPDX-License-Identifier: Apache-2.0
// A plan's prediction beside what a run of it measured. In: a plan, the trace of a run (`cleave run
// --trace`). Out: of each phase one pass, its times medians over the passes that are alike, beside
// the prediction of a pass of that size, and where the two differ most, with a cause.
//
// `cleave inspect PLAN --trace FILE --json` has it as "measured"
// (tools/schema/inspect.schema.json):
//
//   "measured": {"trace": FILE, "prefill": PASS or null, "decode": PASS or null}
//   PASS: {"num_passes", "compared_passes", "num_tokens", "keys_per_token", "measured_us",
//          "predicted_us",
//          "devices": [{"device", "measured": SUMS, "predicted": SUMS, "steps": [STEP, ...]}, ...],
//          "differences": [DIFFERENCE, ...]}
//   SUMS: {"compute_us", "exchange_us", "waiting_us"}: together the pass
//   STEP: {"id", "start_us", "end_us", "predicted_start_us", "predicted_end_us"}, from the pass's
//         begin on, in the device's order; a transfer or collective also has "ready_us", when the
//         last member had come: from "start_us" to there the device waits
//   DIFFERENCE: {"device", "cause": "rate" | "launch" | "waiting", "what", "steps", "measured_us",
//         "predicted_us", "difference_us", "says"}, largest first
//
// "id" is that of "plan"."steps" of the same phase. A device without steps has an empty list.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/plan/plan.h"
#include "runtime/execute/trace.h"

namespace cleave::tools {

// Of one device in one pass, as DeviceTime of inspection.h; in ns.
struct TimeSums {
    int64_t compute_ns = 0, exchange_ns = 0, waiting_ns = 0;
};

// Of one step on one device, from the pass's begin.
struct MeasuredStep {
    planner::StepId step;
    int64_t start_ns = 0, end_ns = 0;
    int64_t ready_ns = 0;  // when the last member had come; of a launch its start
    int64_t predicted_start_ns = 0, predicted_end_ns = 0, predicted_fixed_ns = 0;
    int64_t work_ns = 0, waiting_ns = 0;  // from there to the end; before
    int64_t predicted_waiting_ns = 0;     // since the device's step before

    int64_t predicted_ns() const { return predicted_end_ns - predicted_start_ns; }
};

struct MeasuredDevice {
    planner::DeviceId device;
    std::vector<MeasuredStep> steps;  // in the device's order
    TimeSums measured, predicted;
};

// Why steps took longer, or less long: their work went at another rate; what each costs whatever
// its size; the device waited for another.
enum class Cause : uint8_t { kRate, kLaunch, kWaiting };
std::string_view cause_name(Cause cause);

struct Difference {
    planner::DeviceId device;
    Cause cause = Cause::kRate;
    std::string what;  // "norm_gate_up", "all_reduce + add"
    int64_t steps = 0;
    int64_t measured_ns = 0, predicted_ns = 0;  // of all these steps in one pass
    std::string says;                           // "12.1 GB/s in place of 18.0"
    int64_t difference_ns() const { return measured_ns - predicted_ns; }
};

struct MeasuredPass {
    bool is_prefill = false;
    int64_t num_passes = 0;   // of the phase, in the trace
    int64_t compared = 0;     // of the most frequent number of tokens
    runtime::TracePass size;  // their median
    int64_t measured_ns = 0, predicted_ns = 0;
    std::vector<MeasuredDevice> devices;  // all of the machine
    std::vector<Difference> differences;  // largest first
};

struct Measured {
    std::string trace;                                // the file
    std::array<std::optional<MeasuredPass>, 2> pass;  // decode, prefill; none: the trace has none
};

// `trace` of `plan` (read_trace), of which `path` is the file.
Measured compare_with_trace(const planner::Plan& plan, const runtime::Trace& trace,
                            const std::string& path);

inline double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

nlohmann::ordered_json measured_json(const planner::Plan& plan, const Measured& measured);
// Columns of at most `width` characters.
std::string measured_text(const planner::Plan& plan, const Measured& measured, int width,
                          bool color);

}  // namespace cleave::tools
