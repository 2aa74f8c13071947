// SPDX-License-Identifier: Apache-2.0
// Where a model and a machine are so small that every placement can be built and simulated, that is
// what is done: the answer is then the optimum of the space by construction. The space: cuts
// between units, contiguous ranges of the tables' device order, devices left out anywhere, each way
// to share a stage's work and heads; for throughput also every assignment of units to disjoint
// ranges, in any order.
#pragma once

#include <functional>

#include "planner/plan/workload.h"
#include "planner/search/cost_tables.h"

namespace cleave::planner {

// Calls `visit` with every placement, or with none and returns false when there are more than
// `most`.
bool each_placement(const Analysis& analysis, CostTables& tables, Objective objective,
                    bool may_split, double most,
                    const std::function<void(const Placement&)>& visit);

}  // namespace cleave::planner
