// SPDX-License-Identifier: Apache-2.0
// In: an analysed Graph, a Machine, a Workload and a Placement. Out: the Plan's explicit part:
// stages, weight shards, KV slabs, rope tables, and for both phases placed values and steps,
// without buffers or times. Constants used on several devices become shards of each; edges between
// stages become transfers; partial sums become collectives, which take the norm behind them along
// where planner/build/norm_epilogue.h says so. One forward pass over the groups.
#pragma once

#include "planner/analysis/analysis.h"
#include "planner/build/placement.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

void build_steps(const Analysis& analysis, const Placement& placement, Plan& plan);

// What steps follow of the sizes of a workload: of requests that differ in batch, context and
// prompt alone, and whose choices are equal, the steps are, but for what launches compute.
std::vector<int64_t> size_choices(const Analysis& analysis, const Placement& placement,
                                  const PlanRequest& request);

}  // namespace cleave::planner
