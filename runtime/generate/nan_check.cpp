// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate/nan_check.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/base/errors.h"
#include "runtime/execute/greedy.h"

namespace cleave::runtime {

namespace {

using planner::DeviceId;
using planner::Plan;

std::set<std::string_view> types_of_matrices(const Plan& plan) {
    std::set<std::string_view> found;
    for (const planner::WeightShard& shard : plan.weights)
        if (plan.graph.weight(shard.weight).shape.size() >= 2)
            found.insert(dtype_name(shard.dtype));
    return found;
}

// Those of the stages, the first ones by name.
std::string devices_of(const Plan& plan) {
    constexpr size_t kNamed = 8;
    std::vector<std::string> names;
    size_t all = 0;
    for (const planner::Stage& stage : plan.stages)
        for (DeviceId id : stage.devices) {
            const std::string& name = plan.machine.device(id).name;
            if (std::find(names.begin(), names.end(), name) != names.end()) continue;
            if (++all <= kNamed) names.push_back(name);
        }
    std::string text = fmt::format("{}", fmt::join(names, ", "));
    return all > kNamed ? text + fmt::format(" and {} more", all - kNamed) : text;
}

}  // namespace

std::string not_numbers(const Plan& plan, const std::string& where) {
    const DType kv = plan.workload.kv_dtype.value_or(DType::kF32);
    std::string text = fmt::format(
        "{}: the logits at {} are not numbers; computed on {} with {} weights and a KV "
        "cache of {}. ",
        plan.graph.name, where, devices_of(plan), fmt::join(types_of_matrices(plan), ", "), kv);
    if (kv == DType::kF16)
        text +=
            "Keys and values in a cache of f16 are at most 65504, and so are the queries of a "
            "prompt that meet it on a GPU: give $kv_dtype bf16 or f32. ";
    text += fmt::format(
        "{} the model's weights hold NaN or an infinity, or numbers too large for f32: export it "
        "again",
        kv == DType::kF16 ? "Where that does not help," : "Sums are f32, so");
    return text;
}

void throw_not_numbers(const Plan& plan, const std::string& where) {
    throw UserError("{}", not_numbers(plan, where));
}

void check_numbers(const Plan& plan, std::span<const float> logits, const std::string& where) {
    if (!are_numbers(logits)) throw_not_numbers(plan, where);
}

}  // namespace cleave::runtime
