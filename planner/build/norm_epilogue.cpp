// SPDX-License-Identifier: Apache-2.0
#include "planner/build/norm_epilogue.h"

#include <algorithm>

#include "planner/analysis/sharding.h"
#include "planner/cost/peer_exchange.h"
#include "planner/plan/plan_queries.h"
#include "planner/tiles/gpu.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

using importer::Op;
using importer::OpKind;

namespace {

// Launches whose norm may be absent.
bool may_lack_norm(KernelKind kernel) {
    return kernel == KernelKind::kNormQkvRopeAppend || kernel == KernelKind::kNormGateUp ||
           kernel == KernelKind::kNormLinear;
}

bool is_plain_vector(const importer::Weight& weight, int64_t width) {
    return weight.shape == std::vector<int64_t>{width} &&
           weight.packing == importer::Packing::kDense &&
           (weight.dtype == DType::kF32 || weight.dtype == DType::kF16 ||
            weight.dtype == DType::kBF16);
}

bool begins_with_norm_of(const Analysis& a, const FusedGroup& group, ValueId sum, int64_t width) {
    if (!may_lack_norm(group.kernel)) return false;
    const Op& op = a.graph.op(group.ops.front());
    return op.kind == OpKind::kRmsNorm && op.inputs[0] == sum && op.weights.size() == 1 &&
           op.as<importer::RmsNormAttrs>().group == width &&
           a.splits.values[op.outputs[0].index()].whole() &&
           is_plain_vector(a.graph.weight(op.weights[0]), width);
}

}  // namespace

int reader_of_norm(const Analysis& a, const Workload& workload, int sum, int end) {
    const FusedGroup& group = a.groups[static_cast<size_t>(sum)];
    if (!group.epilogue.valid() || !group.residual.valid()) return -1;
    const ValueId made = group.outputs[0];
    const importer::Value& value = a.graph.value(made);
    if (!a.splits.values[made.index()].whole() || value.shape.size() != 2) return -1;
    const int64_t width = last_dimension(value);
    const int64_t run = load_width(dtype_bytes(placed_dtype(value, workload), 1), width);
    if (width > kPeerRowThreads * kPeerRowTurns * run) return -1;
    const int last = std::min(end - 1, a.last_group[made.index()]);
    for (int g = sum + 1; g <= last; ++g)
        if (begins_with_norm_of(a, a.groups[static_cast<size_t>(g)], made, width)) return g;
    return -1;
}

FusedGroup without_norm(const Graph& graph, const FusedGroup& group) {
    FusedGroup rest = group;
    CLEAVE_CHECK(graph.op(rest.ops.front()).kind == OpKind::kRmsNorm)
        << "a launch without its norm";
    rest.ops.erase(rest.ops.begin());
    rest.first = rest.ops.front();
    rest.inputs.clear();
    auto is_made_here = [&](ValueId v) {
        return std::any_of(rest.ops.begin(), rest.ops.end(), [&](OpId id) {
            const auto& made = graph.op(id).outputs;
            return std::find(made.begin(), made.end(), v) != made.end();
        });
    };
    for (OpId id : rest.ops)
        for (ValueId v : graph.op(id).inputs)
            if (graph.value(v).kind != importer::ValueKind::kKvState && !is_made_here(v) &&
                std::find(rest.inputs.begin(), rest.inputs.end(), v) == rest.inputs.end())
                rest.inputs.push_back(v);
    return rest;
}

}  // namespace cleave::planner
