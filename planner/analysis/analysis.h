// SPDX-License-Identifier: Apache-2.0
// In: a Graph, and how products compute. Out: the Graph as the later passes read it: what each
// operator may split, operators grouped into launches, the units that a pipeline may be cut
// between. Made once, shared by all candidates, and never changed.
#pragma once

#include <vector>

#include "planner/analysis/fuse.h"
#include "planner/analysis/sharding.h"

namespace cleave::planner {

struct Analysis {
    const Graph& graph;  // owned by the caller of analyse(), who keeps it longer than this
    GraphSplits splits;
    std::vector<FusedGroup> groups;
    std::vector<Unit> units;
    std::vector<int> last_group;  // by ValueId: the last group that reads it, or -1
    std::vector<int> made_by;     // by ValueId: the group that makes it, or -1
};

// Refers to `graph` as long as it lives: no temporary. Of the workload, the types and the
// arithmetic of products count, which is exact where it is not settled
// (planner/search/check_options.h).
Analysis analyse(const Graph& graph, const Workload& workload);
Analysis analyse(const Graph&& graph, const Workload& workload) = delete;

}  // namespace cleave::planner
