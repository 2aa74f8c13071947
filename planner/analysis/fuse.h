// SPDX-License-Identifier: Apache-2.0
// In: a Graph and its splits. Out: its operators grouped into launches, by pattern, one KernelKind
// each; what matches no pattern stays alone; chains of elementwise operators join the launch that
// makes their input. Invariants: every operator is in exactly one group; groups are in an order
// in which each reads only what earlier ones (or the graph's inputs) make; nothing inside a group
// is read outside.
#pragma once

#include <vector>

#include "planner/analysis/sharding.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct FusedGroup {
    KernelKind kernel = KernelKind::kOpaque;
    std::vector<OpId> ops;  // in graph order, without the epilogue
    OpId epilogue;  // kLinear: the residual Add; fused into the launch, or into the all-reduce of a
                    // partial sum
    ValueId residual;  // the Add's other operand
    std::vector<ValueId>
        inputs;  // from outside, in the order of consumption, without the residual and KV state
    std::vector<ValueId>
        outputs;       // what it makes, KV states apart; the sum, when there is an epilogue
    ValueId partial;   // the summand's value, with an epilogue or a partial effect; else invalid
    ValueId kv_state;  // appended to or read; invalid for none
    OpSplit split;     // of the launch; heads, columns or vocabulary
    int layer = -1;
    OpId first, last;  // smallest and largest operator, epilogue included
};

// A group whose partial result must be summed over the stage's devices.
inline bool is_partial(const FusedGroup& group) {
    return group.split.effect == SplitEffect::kPartial;
}

// A group whose columns, made on the stage's devices, are put together on each of them; an epilogue
// included.
inline bool is_gathered(const FusedGroup& group) {
    return group.split.effect == SplitEffect::kGathered;
}

std::vector<FusedGroup> fuse(const Graph& graph, const GraphSplits& splits);

// Where a pipeline may be cut: groups [unit.begin, unit.end) belong together. Between units every
// value that crosses is whole, and no KV state crosses.
struct Unit {
    int begin = 0, end = 0;
    int first_layer = -1, last_layer = -1;  // of decoder layers touched
};
std::vector<Unit> find_units(const Graph& graph, const GraphSplits& splits,
                             const std::vector<FusedGroup>& groups);

}  // namespace cleave::planner
