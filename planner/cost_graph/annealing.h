// SPDX-License-Identifier: Apache-2.0
// Non-contiguous plans: simulated annealing over the device of each colour class, from several
// starts, with exact incremental loads. Deterministic for a seed unless the clock ends it first.
#pragma once

#include "planner/cost_graph/contiguous.h"

namespace cleave::planner::cost_graph {

// Never worse than `start`. Stops at `bound` (nothing can be better), or after `seconds`.
Assignment anneal(const CostGraph& graph, const Pieces& pieces, const Assignment& start,
                  double bound, double seconds, int64_t seed);

}  // namespace cleave::planner::cost_graph
