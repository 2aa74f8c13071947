// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/run_check.h"

#include <algorithm>

#include "importer/weights/quantize.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "runtime/base/errors.h"
#include "tools/cli/planning.h"

namespace cleave::tools {
namespace {

using planner::Plan;

bool against_f32(const RunArguments& flags) { return flags.check == kCheckF32; }

DType kv_dtype(const Plan& plan) { return plan.workload.kv_dtype.value_or(DType::kF32); }

// All weights, activations and the cache are f32, and products round nothing.
bool is_f32(const Plan& plan) {
    return kv_dtype(plan) == DType::kF32 && plan.workload.activation_dtype == DType::kF32 &&
           plan.workload.compute.value_or(planner::ComputeMode::kExact) ==
               planner::ComputeMode::kExact &&
           std::ranges::all_of(plan.weights, [](const planner::WeightShard& shard) {
               return shard.dtype == DType::kF32;
           });
}

// The reference: the model on one host device.
Plan reference_plan(const RunArguments& flags, const Plan& plan, size_t sequences) {
    LoadedModel model;
    model.graph = against_f32(flags) ? importer::weights_as_stored(plan.graph) : plan.graph;
    PlanFlags of_host = flags.plan;
    of_host.devices = "host";
    of_host.machine_file.clear();
    of_host.wiring = {};
    of_host.tensor_parallel = of_host.pipeline_stages = 0;
    of_host.pins.clear();
    of_host.alone = true;
    of_host.objective = "latency";
    of_host.replicas.clear();
    of_host.concurrency = 0;
    of_host.max_ttft = of_host.max_tpot = 0;
    RunFlags run = flags.run;
    run.simt_seed.reset();
    planner::Workload workload = plan.workload;
    workload.batch = static_cast<int64_t>(sequences);
    workload.activation_dtype = DType::kF32;
    if (against_f32(flags)) {
        workload.dtype = workload.kv_dtype = DType::kF32;
        workload.compute = planner::ComputeMode::kExact;
    }
    return plan_from_flags(std::move(model), of_host, run, workload, flags.drivers);
}

std::vector<runtime::SequenceResult> reference_logits(
    const RunArguments& flags, Plan& host, const std::vector<std::vector<int32_t>>& prompts,
    const runtime::GenerateOptions& options, const runtime::GenerateResult& result) {
    RunArguments quiet = flags;
    quiet.trace.clear();
    quiet.run.simt_seed.reset();
    auto session = open_session(host, quiet);
    runtime::GenerateOptions silent = options;
    // As many tokens as the run made: no stop token ends a text here.
    silent.stop_ids.clear();
    silent.logprobs.reset();
    if (!against_f32(flags)) {
        std::vector<size_t> made(prompts.size(), 0);
        silent.on_token = [&](size_t sequence, int32_t) {
            return ++made[sequence] < result.sequences[sequence].token_ids.size();
        };
        return runtime::generate(*session, host, prompts, silent).sequences;
    }
    // Other weights choose other tokens: the reference reads the run's own.
    std::vector<std::vector<int32_t>> texts = prompts;
    for (size_t s = 0; s < texts.size(); ++s) {
        const std::vector<int32_t>& made = result.sequences[s].token_ids;
        if (!made.empty()) texts[s].insert(texts[s].end(), made.begin(), made.end() - 1);
    }
    silent.on_token = nullptr;
    silent.max_new_tokens = 1;
    silent.sampling = {};
    return runtime::generate(*session, host, texts, silent).sequences;
}

}  // namespace

void demand_reference(const RunArguments& flags, const Plan& plan) {
    if (flags.check.empty()) return;
    const std::vector<planner::DeviceId> used = used_devices(plan);
    const bool is_host = plan.num_replicas() == 1 && used.size() == 1 &&
                         plan.machine.device(used[0]).kind == planner::DeviceKind::kHost;
    if (!is_host || (against_f32(flags) && !is_f32(plan))) return;
    throw UserError(
        "--check: nothing to compare: the plan is the reference, {} on one host device; {}",
        against_f32(flags) ? "the model in f32" : "the model in these types",
        is_f32(plan) ? "leave it out, or have the plan use more devices (--tp, --pp)"
                     : "leave it out, have the plan use more devices (--tp, --pp), or "
                       "compare with the model in f32: --check=f32");
}

LogitDifference host_difference(const RunArguments& flags, const Plan& plan,
                                const std::vector<std::vector<int32_t>>& prompts,
                                const runtime::GenerateOptions& options,
                                const runtime::GenerateResult& result) {
    Plan host = reference_plan(flags, plan, prompts.size());
    const std::vector<runtime::SequenceResult> expected =
        reference_logits(flags, host, prompts, options, result);
    LogitDifference difference;
    for (size_t s = 0; s < prompts.size(); ++s) {
        LogitDifference one = compare_logits(result.sequences[s].logits, expected[s].logits,
                                             static_cast<size_t>(plan.graph.config.vocab_size));
        if (!one.reason.empty()) one.reason = fmt::format("sequence {}: {}", s, one.reason);
        difference.add(one);
        if (!one.reason.empty()) break;
    }
    return difference;
}

void demand_numbers(const LogitDifference& difference) {
    if (!difference.reason.empty())
        throw UserError("--check: the logits cannot be compared with the host's: {}",
                        difference.reason);
}

std::string check_text(const RunArguments& flags, const Plan& plan,
                       const LogitDifference& difference) {
    if (!against_f32(flags))
        return fmt::format("check against host: max logit difference {:.3g}", difference.largest);
    const auto rows = static_cast<double>(std::max<int64_t>(1, difference.rows));
    return fmt::format(
        "check against the model in f32: with {} weights and a KV cache in {} the likeliest token "
        "is the same at {} of {} positions ({:.1f} %), which cost {:.3g} nats a token (KL "
        "divergence); max logit difference {:.3g}",
        planner::weights_dtype(plan), kv_dtype(plan), difference.same_choices, difference.rows,
        100 * static_cast<double>(difference.same_choices) / rows, difference.divergence / rows,
        difference.largest);
}

void add_check(const RunArguments& flags, const LogitDifference& difference,
               nlohmann::ordered_json& json) {
    json["check_max_difference"] = difference.largest;
    if (!difference.reason.empty()) {
        json["check_max_difference"] = nullptr;
        json["check_reason"] = difference.reason;
        return;
    }
    json["check"] = {
        {"against", flags.check},
        {"positions", difference.rows},
        {"same_choices", difference.same_choices},
        {"divergence_nats",
         difference.divergence / static_cast<double>(std::max<int64_t>(1, difference.rows))}};
}

}  // namespace cleave::tools
