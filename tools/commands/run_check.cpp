// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/run_check.h"

#include <algorithm>

#include "runtime/base/errors.h"
#include "tools/cli/planning.h"

namespace cleave::tools {

LogitDifference host_difference(const RunArguments& flags, const planner::Plan& plan,
                                const std::vector<std::vector<int32_t>>& prompts,
                                const runtime::GenerateOptions& options,
                                const runtime::GenerateResult& result) {
    LoadedModel model;
    model.graph = plan.graph;
    PlanFlags of_host = flags.plan;
    of_host.devices = "host";
    of_host.machine_file.clear();
    of_host.tensor_parallel = of_host.pipeline_stages = 0;
    of_host.pins.clear();
    RunArguments quiet = flags;
    quiet.trace.clear();
    quiet.run.simt_seed.reset();
    of_host.alone = true;
    of_host.objective = "latency";
    of_host.replicas.clear();
    of_host.concurrency = 0;
    of_host.max_ttft = of_host.max_tpot = 0;
    planner::Workload workload = plan.workload;
    workload.batch = static_cast<int64_t>(prompts.size());
    planner::Plan host =
        plan_from_flags(std::move(model), of_host, quiet.run, workload, flags.drivers);
    auto session = open_session(host, quiet);
    runtime::GenerateOptions silent = options;
    // As many tokens as the run made: no stop token ends a text here.
    silent.stop_ids.clear();
    std::vector<size_t> made(prompts.size(), 0);
    silent.on_token = [&](size_t sequence, int32_t) {
        return ++made[sequence] < result.sequences[sequence].token_ids.size();
    };
    runtime::GenerateResult expected = runtime::generate(*session, host, prompts, silent);
    LogitDifference difference;
    for (size_t s = 0; s < prompts.size(); ++s) {
        const LogitDifference one =
            compare_logits(result.sequences[s].logits, expected.sequences[s].logits,
                           static_cast<size_t>(plan.graph.config.vocab_size));
        if (!one.reason.empty()) return {0, fmt::format("sequence {}: {}", s, one.reason)};
        difference.largest = std::max(difference.largest, one.largest);
    }
    return difference;
}

void demand_numbers(const LogitDifference& difference) {
    if (!difference.reason.empty())
        throw UserError("--check: the logits cannot be compared with the host's: {}",
                        difference.reason);
}

}  // namespace cleave::tools
