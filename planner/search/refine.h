// SPDX-License-Identifier: Apache-2.0
// The programme's cost of a stage knows its neighbours only roughly (who sends how often to how
// many); on small plans the event simulation can afford to correct that. Moves a cut by a unit, a
// device across a boundary, joins two stages, gives a unit to another stage's devices (for
// throughput), or changes how heads are grouped, while the simulated objective falls and the budget
// lasts.
#pragma once

#include "planner/analysis/placement.h"
#include "planner/plan/plan.h"
#include "planner/search/check_options.h"

namespace cleave::planner {

// Improves `plan`, built from `placement`, in place; `step_budget` bounds the steps built on the
// way. Forced shapes keep their stages and devices. True when something was gained.
bool refine(const Analysis& analysis, const Shape& shape, size_t step_budget, Placement& placement,
            Plan& plan);

}  // namespace cleave::planner
