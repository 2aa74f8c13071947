// SPDX-License-Identifier: Apache-2.0
#include "planner/build/build_plan.h"

#include <algorithm>

#include "planner/build/assign_memory.h"
#include "planner/build/choose_tiles.h"
#include "planner/build/steps.h"
#include "planner/cost/simulate.h"

namespace cleave::planner {

void build_memory(const Analysis& analysis, const Placement& placement, Plan& plan) {
    build_steps(analysis, placement, plan);
    choose_tiles(plan);
    assign_memory(plan);
}

void build_placement(const Analysis& analysis, const Placement& placement, Plan& plan) {
    build_memory(analysis, placement, plan);
    // What lacks memory, too, is told by that, with what would fit.
    if (fits_memory(plan)) check_launch_limits(plan);
    simulate(analysis, plan);
}

bool fits_memory(const Plan& plan) {
    return std::all_of(plan.memory.begin(), plan.memory.end(),
                       [](const DeviceMemory& m) { return m.needed() <= m.capacity; });
}

}  // namespace cleave::planner
