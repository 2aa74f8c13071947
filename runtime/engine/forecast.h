// SPDX-License-Identifier: Apache-2.0
// How a plan would serve a trace: the server's own scheduler, with the planner's simulated times in
// place of devices. In: a plan, requests with their arrivals. Out: throughput, latencies, use of
// the KV pool. Deterministic. It has no tokens, so it shares no prefixes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/serve_trace.h"

namespace cleave::runtime {

struct Percentiles {
    double p50 = 0, p99 = 0;
};

struct Forecast {
    int64_t requests = 0;  // that ran
    int64_t refused = 0;   // that can never run
    std::string refusal;   // the first one's reason
    int64_t prompt_tokens = 0, output_tokens = 0;
    double seconds = 0;            // from the first arrival to the last token
    double tokens_per_second = 0;  // new ones
    Percentiles first_token_ms;    // since the arrival
    Percentiles token_gap_ms;      // between two tokens of a request
    Percentiles request_ms;        // from the arrival to the last token
    int64_t kv_tokens = 0;         // that the pool has room for
    int64_t most_kv_tokens = 0;    // in use at once
    double mean_kv_use = 0;        // of the pool, over time, in [0, 1]
    double mean_sequences = 0;     // that run, over time
    int64_t passes = 0, preemptions = 0, groups = 1;
    std::vector<double> stage_busy;  // [stages], of the time, in [0, 1]
};

// `options.groups` 0: as many as PassCosts::best_groups finds. UserError as Scheduler has it.
Forecast forecast(const planner::Plan& plan, const std::vector<TraceRequest>& trace,
                  SchedulerOptions options);

// Smallest value that at least `share` of the values do not exceed; 0 for none.
double percentile(std::vector<double> values, double share);

}  // namespace cleave::runtime
