// SPDX-License-Identifier: Apache-2.0
// The dynamic programme's cost of a stage knows its neighbours only roughly: who sends how often to
// how many. On small plans the event simulation can afford to correct that. Single moves, while the
// simulated objective by hardship falls, within the limits, and the budget lasts: a cut by a unit,
// a device across a boundary, two stages joined, another grouping of heads. Where none of these
// gains, those of planner/search/device_moves.h.
#pragma once

#include "planner/build/build_plan.h"
#include "planner/search/check_options.h"
#include "planner/search/simplicity.h"

namespace cleave::planner {

// Improves `plan`, built from `placement`, in place; `step_budget` bounds the steps built on the
// way. Given shapes keep their stages and devices. True when something was gained.
bool refine(const Analysis& analysis, const Shape& shape, const Limits& limits, size_t step_budget,
            PlanBuilder& builder, Placement& placement, PlanBody& plan);

}  // namespace cleave::planner
