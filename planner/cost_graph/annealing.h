// SPDX-License-Identifier: Apache-2.0
// Non-contiguous plans: simulated annealing over the device of each colour class, from several
// starts, with exact incremental loads; of few assignments all. For a seed the moves are the same
// whatever the clock allows, so more time never gives a worse plan.
#pragma once

#include "planner/cost_graph/contiguous.h"

namespace cleave::planner::cost_graph {

// Never worse than `start`. Stops at `bound` (nothing can be better), when all were tried, or after
// `seconds`.
Assignment anneal(const CostGraph& graph, const Pieces& pieces, const Assignment& start,
                  double bound, double seconds, int64_t seed);

}  // namespace cleave::planner::cost_graph
