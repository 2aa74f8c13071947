// SPDX-License-Identifier: Apache-2.0
// A placement made explicit and scored: steps, tiles, buffers, times. What the search, its
// baselines and brute force in tests are all measured by. `plan` comes with graph, machine,
// workload (KV dtype settled) and options set.
#pragma once

#include "planner/analysis/placement.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

void build_placement(const Analysis& analysis, const Placement& placement, Plan& plan);

// The same without times: enough to know what memory it takes.
void build_memory(const Analysis& analysis, const Placement& placement, Plan& plan);

bool fits_memory(const Plan& plan);

}  // namespace cleave::planner
