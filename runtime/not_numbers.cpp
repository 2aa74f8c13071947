// SPDX-License-Identifier: Apache-2.0
#include "runtime/not_numbers.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "importer/quantized_shard.h"
#include "planner/gpu_tiles.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

using planner::DeviceId;
using planner::Plan;

struct Matrices {
    std::set<std::string_view> dtypes;
    bool through_f16 = false;  // activations that they multiply on a GPU, of many tokens
};

Matrices matrices_of(const Plan& plan) {
    Matrices found;
    for (const planner::WeightShard& shard : plan.weights) {
        const importer::Weight& weight = plan.graph.weight(shard.weight);
        if (weight.shape.size() < 2) continue;
        const bool quantized = importer::stays_quantized(weight, shard.dtype);
        found.dtypes.insert(dtype_name(shard.dtype));
        if (plan.machine.device(shard.device).limits.warp_width > 1 &&
            (quantized || (shard.dtype != DType::kF32 && shard.dtype != DType::kBF16)))
            found.through_f16 = true;
    }
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

void throw_not_numbers(const Plan& plan, const std::string& where) {
    const Matrices matrices = matrices_of(plan);
    const DType kv = plan.workload.kv_dtype.value_or(DType::kF32);
    std::string text = fmt::format(
        "{}: the logits at {} are not numbers; computed on {} with {} weights and a KV "
        "cache of {}. ",
        plan.graph.name, where, devices_of(plan), fmt::join(matrices.dtypes, ", "), kv);
    if (matrices.through_f16)
        text += fmt::format(
            "On GPUs, products of prompts and of more than {} sequences take activations as f16, "
            "at most 65504, where the weights are f16, f8 or quantised: give --dtype bf16 or f32. ",
            planner::kFewTokens);
    if (kv == DType::kF16)
        text +=
            "Keys and values in a cache of f16 are at most 65504: give --kv-dtype bf16 or f32. ";
    const bool narrow = matrices.through_f16 || kv == DType::kF16;
    text += fmt::format(
        "{} the model's weights hold NaN or an infinity, or numbers too large for f32: export it "
        "again",
        narrow ? "Where these do not help," : "Sums are f32, so");
    throw UserError("{}", text);
}

void check_numbers(const Plan& plan, std::span<const float> logits, const std::string& where) {
    if (std::any_of(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); }))
        throw_not_numbers(plan, where);
}

}  // namespace cleave::runtime
