// SPDX-License-Identifier: Apache-2.0
// On small requests every placement can be built and simulated, so that is what is done: the answer
// is then the optimum of this space by construction. The space: cuts between units, contiguous
// ranges of the user's device order, devices left out anywhere, each way to share a stage's work
// and heads. Requests of a given shape, and pins that return to a device, are left to the search.
#pragma once

#include "planner/build/build_plan.h"
#include "planner/search/check_options.h"
#include "planner/search/simplicity.h"

namespace cleave::planner {

// Takes the best of all placements, by is_better(), that meets the pins into `placement` and
// `plan`, where it beats them; true when one does. Nothing where there are too many.
bool exhaust(const Analysis& analysis, const Shape& shape, const Limits& limits,
             PlanBuilder& builder, Placement& placement, PlanBody& plan);

}  // namespace cleave::planner
