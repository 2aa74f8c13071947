// SPDX-License-Identifier: Apache-2.0
#include "planner/view/stage_text.h"

#include <fmt/ranges.h>

namespace cleave::planner {
namespace {

using importer::OpKind;

// Which half of a layer the stage has, by what it computes there.
std::string half_text(const Plan& plan, const Stage& stage, int layer) {
    bool attention = false, mlp = false;
    for (size_t i = stage.first_op.index(); i <= stage.last_op.index(); ++i) {
        const importer::Op& op = plan.graph.ops[i];
        if (op.layer != layer) continue;
        attention = attention || op.kind == OpKind::kAttention;
        mlp = mlp || op.kind == OpKind::kGatedActivation;
    }
    return fmt::format("{} of {}",
                       attention == mlp ? "part"
                       : attention      ? "attention"
                                        : "MLP",
                       layer);
}

}  // namespace

std::string first_to_last(int64_t first, int64_t last) {
    if (last < first) return "-";
    return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

StageLayers layers_of(const Plan& plan, size_t stage) {
    const std::vector<Stage>& stages = plan.stages;
    StageLayers layers{stages[stage].first_layer, stages[stage].last_layer, "", ""};
    if (layers.last < layers.first) return layers;
    const auto has = [&](size_t s, int layer) {
        return stages[s].first_layer <= layer && layer <= stages[s].last_layer;
    };
    if (stage > 0 && has(stage - 1, layers.first))
        layers.before = half_text(plan, stages[stage], layers.first++);
    if (layers.first <= layers.last && stage + 1 < stages.size() && has(stage + 1, layers.last))
        layers.after = half_text(plan, stages[stage], layers.last--);
    return layers;
}

std::string StageLayers::text() const {
    std::vector<std::string> parts;
    if (!before.empty()) parts.push_back(before);
    if (whole() > 0) parts.push_back(first_to_last(first, last));
    if (!after.empty()) parts.push_back(after);
    return parts.empty() ? "-" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace cleave::planner
