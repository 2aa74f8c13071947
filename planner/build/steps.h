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

}  // namespace cleave::planner
