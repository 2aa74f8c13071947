// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/run_prediction.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "planner/analysis/analysis.h"
#include "planner/cost/simulate.h"

namespace cleave::tools {
namespace {

using planner::Plan;

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

// One replica's part: its prompts as equally long ones, its texts as one of their mean length.
RunPrediction predict_part(const Plan& plan, std::span<const std::vector<int32_t>> prompts,
                           std::span<const runtime::SequenceResult> sequences) {
    int64_t prompt_tokens = 0, steps = 0, decoded = 0;
    for (const std::vector<int32_t>& prompt : prompts) prompt_tokens += std::ssize(prompt);
    for (const runtime::SequenceResult& s : sequences) {
        const int64_t of_decode = std::max<int64_t>(0, std::ssize(s.token_ids) - 1);
        steps = std::max(steps, of_decode);
        decoded += of_decode;
    }
    const auto count = std::ssize(prompts);
    const planner::Analysis analysis = planner::analyse(plan.graph, plan.workload);
    Plan ran = plan;
    ran.options.objective = planner::Objective::kLatency;
    ran.workload.batch = count;
    ran.workload.prompt_tokens = std::max<int64_t>(1, (prompt_tokens + count / 2) / count);
    ran.workload.context = ran.workload.prompt_tokens + std::max<int64_t>(1, steps);
    planner::simulate(analysis, ran);
    RunPrediction prediction;
    prediction.prefill_ms = ms(ran.prediction.prefill_ns);
    if (steps == 0) return prediction;
    // Of a step: the sequences that are still live, on average.
    const double live = static_cast<double>(decoded) / static_cast<double>(steps);
    const auto whole =
        planner::decode_times(analysis, ran, std::max<int64_t>(1, std::llround(live)));
    prediction.decode_ms_per_token = ms(whole.whole_ns);
    prediction.tokens_per_second = 1e3 * live / std::max(1e-9, prediction.decode_ms_per_token);
    return prediction;
}

}  // namespace

RunPrediction predict_run(const std::vector<Plan>& replicas,
                          const std::vector<std::vector<int32_t>>& prompts,
                          const std::vector<runtime::SequenceResult>& sequences) {
    RunPrediction all;
    std::vector<const Plan*> plans;
    for (const Plan& plan : replicas) plans.push_back(&plan);
    const std::vector<size_t> cuts = runtime::parts_of_prompts(plans, prompts.size());
    for (size_t r = 0; r < replicas.size(); ++r) {
        const size_t begin = cuts[r], count = cuts[r + 1] - begin;
        if (count == 0) continue;
        const RunPrediction one =
            predict_part(replicas[r], std::span(prompts).subspan(begin, count),
                         std::span(sequences).subspan(begin, count));
        all.prefill_ms = std::max(all.prefill_ms, one.prefill_ms);
        all.decode_ms_per_token = std::max(all.decode_ms_per_token, one.decode_ms_per_token);
        all.tokens_per_second += one.tokens_per_second;
    }
    return all;
}

}  // namespace cleave::tools
