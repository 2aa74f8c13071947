// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/pass_costs.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "planner/cost/simulate.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"
#include "runtime/execute/device_steps.h"

namespace cleave::runtime {

namespace {

// Of the stages in a simulated pass of `total_ns`. Transfers lead to a stage, or away.
std::vector<StageTime> stage_times_of(const planner::Phase& phase, size_t stages,
                                      int64_t total_ns) {
    std::vector<int64_t> begins(stages, total_ns), ends(stages);
    for (const planner::Step& step : phase.steps) {
        if (step.transfer() != nullptr) continue;
        const auto stage = static_cast<size_t>(step.stage);
        begins[stage] = std::min(begins[stage], step.start_ns);
        ends[stage] = std::max(ends[stage], step.start_ns + step.predicted_ns);
    }
    begins[0] = 0;
    std::vector<StageTime> times(stages);
    for (size_t s = 0; s < stages; ++s) {
        const int64_t next = s + 1 < stages ? begins[s + 1] : total_ns;
        times[s].whole_ns = static_cast<double>(std::max<int64_t>(0, next - begins[s]));
        times[s].own_ns = static_cast<double>(std::max<int64_t>(0, ends[s] - begins[s]));
    }
    return times;
}

void add(std::vector<StageTime>& to, const std::vector<StageTime>& times, double weight) {
    for (size_t s = 0; s < to.size(); ++s) {
        to[s].whole_ns += weight * times[s].whole_ns;
        to[s].own_ns += weight * times[s].own_ns;
    }
}

}  // namespace

PassSize size_of(const Batch& batch) {
    PassSize size{.tokens = batch.num_tokens(),
                  .outputs = batch.num_outputs(),
                  .is_prefill = batch.is_prefill};
    for (int32_t position : batch.positions) size.keys += position + 1;
    if (batch.is_prefill) size.singles = shape_of(batch).num_singles;
    for (int64_t t = 0; t < size.singles; ++t)
        size.single_keys += batch.positions[static_cast<size_t>(t)] + 1;
    return size;
}

PassCosts::PassCosts(const planner::Plan& plan)
    : workload_(plan.workload),
      plan_(plan),
      analysis_(planner::analyse(plan_.graph, plan_.workload)) {
    std::map<std::string, size_t> numbers;
    for (const planner::Stage& stage : plan_.stages) {
        std::set<size_t> hosts;
        for (const planner::DeviceId id : stage.devices) {
            const planner::DeviceInfo& device = plan_.machine.device(id);
            if (planner::is_on_cores(device.kind))
                hosts.insert(numbers.try_emplace(device.host, numbers.size()).first->second);
        }
        hosts_of_stages_.emplace_back(hosts.begin(), hosts.end());
    }
    num_hosts_ = numbers.size();
}

// Of a decode pass: `tokens` sequences with `keys` keys each. Of a prefill pass: one of the passes
// of `outputs` prompts that are so long that a token sees `keys` keys on average.
const std::vector<StageTime>& PassCosts::at(const Node& node) {
    auto [place, is_new] = known_.try_emplace(node);
    if (!is_new) return place->second;
    int64_t tokens = int64_t{1} << node[0], keys = int64_t{1} << node[1];
    bool is_prefill = node[3] != 0;
    plan_.workload =
        planner::workload_of_pass(workload_, {is_prefill, tokens, int64_t{1} << node[2], keys});
    planner::simulate(analysis_, plan_);
    int64_t total = plan_.prediction.decode_ns_per_token;
    if (is_prefill) {
        // The first pass alone: prefill_ns counts the passes that follow it, too.
        total = 0;
        for (const planner::Step& step : plan_.prefill.steps) {
            total = std::max(total, step.start_ns + step.predicted_ns);
        }
    }
    place->second = stage_times_of(plan_.phase(is_prefill), plan_.stages.size(), total);
    return place->second;
}

// What reading their keys adds to a decode pass.
std::vector<StageTime> PassCosts::attention_of_singles(const PassSize& pass) {
    const int64_t rows = pass.singles;
    std::vector<StageTime> added = stage_times({rows, rows, pass.single_keys});
    add(added, stage_times({rows, rows, rows}), -1);
    for (StageTime& time : added) time = {std::max(0.0, time.whole_ns), std::max(0.0, time.own_ns)};
    return added;
}

// Linear between powers of two of each size.
std::vector<StageTime> PassCosts::stage_times(const PassSize& pass) {
    if (pass.singles > 0) {
        PassSize prompts = pass;
        prompts.singles = prompts.single_keys = 0;
        prompts.keys -= pass.single_keys;
        std::vector<StageTime> all = stage_times(prompts);
        add(all, attention_of_singles(pass), 1);
        return all;
    }
    double per_token = static_cast<double>(pass.keys) / static_cast<double>(pass.tokens);
    std::array<double, 3> sizes{static_cast<double>(pass.tokens), std::max(1.0, per_token),
                                std::max(1.0, static_cast<double>(pass.outputs))};
    std::array<int, 3> low{};
    std::array<double, 3> share{};
    for (size_t i = 0; i < 3; ++i) {
        low[i] = static_cast<int>(std::floor(std::log2(sizes[i])));
        share[i] = sizes[i] / std::exp2(low[i]) - 1;
    }
    if (!pass.is_prefill) low[2] = 0, share[2] = 0;
    std::vector<StageTime> result(plan_.stages.size());
    for (int corner = 0; corner < 8; ++corner) {
        Node node{0, 0, 0, pass.is_prefill ? 1 : 0};
        double weight = 1;
        for (size_t i = 0; i < 3; ++i) {
            int up = corner >> i & 1;
            node[i] = low[i] + up;
            weight *= up != 0 ? share[i] : 1 - share[i];
        }
        if (weight > 0) add(result, at(node), weight);
    }
    return result;
}

int64_t PassCosts::tokens_within(double ms) {
    const int64_t sequences = workload_.batch;
    auto pass_ms = [&](int64_t tokens) {
        const int64_t chunk = tokens - sequences;
        const int64_t first = std::max<int64_t>(0, workload_.prompt_tokens - chunk);
        const int64_t chunk_keys = chunk * first + chunk * (chunk + 1) / 2;
        const int64_t own_keys = sequences * (workload_.decode_past() + 1);
        double ns = 0;
        for (const StageTime& time : stage_times({.tokens = tokens,
                                                  .outputs = sequences,
                                                  .keys = own_keys + chunk_keys,
                                                  .is_prefill = chunk > 0,
                                                  .singles = chunk > 0 ? sequences : 0,
                                                  .single_keys = chunk > 0 ? own_keys : 0}))
            ns += time.whole_ns;
        return ns / 1e6;
    };
    for (int64_t tokens = workload_.max_tokens(); tokens >= sequences; --tokens)
        if (pass_ms(tokens) <= ms) return tokens;
    throw UserError(
        "a pass with a token of each of {} sequences takes {:.3g} ms by the plan's own costs, and "
        "{:.3g} ms were given: give more ($pass_ms), or plan for fewer sequences ($batch)",
        sequences, pass_ms(sequences), ms);
}

}  // namespace cleave::runtime
