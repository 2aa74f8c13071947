// SPDX-License-Identifier: Apache-2.0
// In: a plan that exists, and the Analysis of its graph. Out: the Placement that PlanBuilder makes
// the same steps of, for its own workload, and others for another one: how a question about a plan
// is answered without a search. The ranges of each stage's devices are read from its steps.
#pragma once

#include "planner/build/placement.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct Analysis;

Placement placement_of(const Analysis& analysis, const Plan& plan);

}  // namespace cleave::planner
