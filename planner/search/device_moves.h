// SPDX-License-Identifier: Apache-2.0
// In: a placement on devices that are not alike. Out: one after another those that differ from it
// by a stage's devices. The dynamic programme takes contiguous ranges of one device order; a move
// here takes any device: two stages exchange theirs; a stage gains an unused one, drops one, or
// takes an unused one for one of its own; a stage gives its last units to an unused one or to one
// of its own alone, or its first; of two neighbouring stages one does the work of both; a device
// does all the work.
#pragma once

#include <functional>

#include "planner/analysis/analysis.h"
#include "planner/build/placement.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// None where all devices are alike: such a move would change nothing. Shares are by speed and by
// memory. `takes_more` is given each as it is made, for of hundreds of devices there are millions;
// none follows once it says false.
void device_moves(const Analysis& analysis, const PlanRequest& request, const Placement& placement,
                  const std::function<bool(Placement)>& takes_more);

}  // namespace cleave::planner
