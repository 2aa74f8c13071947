// SPDX-License-Identifier: Apache-2.0
#include "planner/analysis/analysis.h"

namespace cleave::planner {

Analysis analyse(const Graph& graph, const Workload& workload) {
    Analysis a{graph, assign_splits(graph, workload), {}, {}, {}, {}};
    a.groups = fuse(graph, a.splits);
    a.units = find_units(graph, a.splits, a.groups);
    a.last_group.assign(graph.values.size(), -1);
    a.made_by.assign(graph.values.size(), -1);
    for (size_t g = 0; g < a.groups.size(); ++g) {
        const FusedGroup& group = a.groups[g];
        auto visit = [&](OpId id) {
            for (ValueId v : graph.op(id).inputs) a.last_group[v.index()] = static_cast<int>(g);
            for (ValueId v : graph.op(id).outputs) a.made_by[v.index()] = static_cast<int>(g);
        };
        for (OpId id : group.ops) visit(id);
        if (group.epilogue.valid()) visit(group.epilogue);
    }
    return a;
}

}  // namespace cleave::planner
