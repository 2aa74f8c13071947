// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/predicted_passes.h"

#include <algorithm>
#include <cmath>

namespace cleave::runtime {

PredictedPasses::PredictedPasses(const planner::Plan& plan)
    : plan_(plan), analysis_(planner::analyse(plan.graph, plan.workload)) {}

const std::vector<planner::StepSpan>& PredictedPasses::of(const TracePass& pass) {
    constexpr double kParts = 8;  // of an octave: a value is at most half a part off
    const double keys = std::max(1.0, static_cast<double>(pass.keys) /
                                          static_cast<double>(std::max<int64_t>(1, pass.tokens)));
    const auto rounded = std::llround(std::exp2(std::round(std::log2(keys) * kParts) / kParts));
    const auto [place, is_new] =
        known_.try_emplace({pass.is_prefill ? 1 : 0, pass.tokens, pass.outputs, rounded});
    if (is_new)
        place->second = planner::step_spans(
            analysis_, plan_, pass.is_prefill,
            planner::workload_of_pass(plan_.workload,
                                      {pass.is_prefill, pass.tokens, pass.outputs, rounded}));
    return place->second;
}

int64_t pass_ns(const std::vector<planner::StepSpan>& spans) {
    int64_t end = 0;
    for (const planner::StepSpan& span : spans) end = std::max(end, span.end_ns);
    return end;
}

}  // namespace cleave::runtime
