// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/serving.h"

#include <algorithm>

#include "planner/cost/groups.h"
#include "planner/plan/plan_queries.h"

namespace cleave::planner {

Serving serving_of(const Plan& plan, const PhaseTimes& prefill, int64_t prompt_ns,
                   const std::function<PhaseTimes(int64_t sequences)>& decode) {
    const Workload& w = plan.workload;
    const std::vector<int64_t> threads = core_shares(plan, kAllCores);
    const auto time_of = [&](const PhaseTimes& times) {
        return pass_time_of(plan, times, threads, kAllCores);
    };
    const auto pass_time = [&](int64_t sequences) {
        const Prediction& p = plan.prediction;
        return time_of(sequences == w.batch ? PhaseTimes{p.decode_ns_per_token, p.decode_busy_ns}
                                            : decode(sequences));
    };
    Serving serving{w.batch, 1, round_ns(w.batch, 1, pass_time), 0};
    const int64_t most = std::min(w.batch, most_groups(plan));
    for (int64_t g = 2; g <= most; ++g)
        if (const int64_t ns = round_ns(w.batch, g, pass_time); ns < serving.tpot_ns) {
            serving.groups = g;
            serving.tpot_ns = ns;
        }
    serving.tpot_ns += time_of(prefill).busiest_ns / generated_tokens(w);
    serving.ttft_ns = (w.batch > 1 ? serving.tpot_ns : 0) + prompt_ns;
    return serving;
}

}  // namespace cleave::planner
