// SPDX-License-Identifier: Apache-2.0
// How the requests of a trace were served, predicted (forecast.h) or measured (replay.h):
// throughput, latencies, use of the KV pool. In: what happened and when. Out: a ServeReport.
// Invariants: times never go back. Nothing before the first arrival of a request that runs counts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/engine/scheduler.h"

namespace cleave::runtime {

struct Percentiles {
    double p50 = 0, p99 = 0;
};

struct ServeReport {
    int64_t requests = 0;  // that ran
    int64_t refused = 0;   // that can never run
    std::string refusal;   // the first one's reason
    int64_t prompt_tokens = 0, output_tokens = 0;
    double seconds = 0;            // from the first arrival to the last token
    double tokens_per_second = 0;  // new ones
    Percentiles first_token_ms;    // since the arrival
    Percentiles token_gap_ms;      // between two tokens of a request
    Percentiles request_ms;        // from the arrival to the last token
    Percentiles pass_ms;           // from the submission of a pass to its result
    int64_t kv_tokens = 0;         // that the pool has room for
    int64_t most_kv_tokens = 0;    // in use at once
    double mean_kv_use = 0;        // of the pool, over time, in [0, 1]
    double mean_sequences = 0;     // that run, over time
    int64_t passes = 0, preemptions = 0, groups = 1;
    int64_t token_budget = 0;        // tokens of a pass, at most
    std::vector<double> stage_busy;  // predicted: [stages], of the time, in [0, 1]; measured: empty
};

// Smallest value that at least `share` of the values do not exceed; 0 for none.
double percentile(std::vector<double> values, double share);

// One thread uses an object at a time. Milliseconds are of one clock.
class ServeMeter {
public:
    // `request` is any number of the caller's, used once.
    void arrive(int64_t request, double at_ms, int64_t prompt_tokens);
    void refuse(const std::string& reason);
    // The request's next token; `ends`: its last one.
    void token(int64_t request, double at_ms, bool ends);
    void pass(double span_ms) { pass_ms_.push_back(span_ms); }
    // From the last call until `at_ms`, or from the first arrival, the pool and the slots were used
    // so.
    void use(double at_ms, const SchedulerStatistics& now);
    // At the end, of a plan with `limits` and a scheduler with `options`. Knows nothing of stages.
    ServeReport report(const EngineLimits& limits, const SchedulerOptions& options,
                       const SchedulerStatistics& end);

private:
    struct Progress {
        double arrival_ms = 0, last_ms = 0;
        int64_t tokens = 0;
    };
    std::map<int64_t, Progress> progress_;
    std::vector<double> first_ms_, gaps_ms_, whole_ms_, pass_ms_;
    double start_ms_ = -1, used_ms_ = 0, last_ms_ = 0;
    double kv_time_ = 0, sequences_time_ = 0;  // integrals over time
    ServeReport result_;
};

}  // namespace cleave::runtime
