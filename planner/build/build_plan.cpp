// SPDX-License-Identifier: Apache-2.0
#include "planner/build/build_plan.h"

#include <algorithm>
#include <utility>

#include "planner/build/assign_memory.h"
#include "planner/build/choose_tiles.h"
#include "planner/build/steps.h"
#include "planner/cost/simulate.h"

namespace cleave::planner {

void PlanBuilder::build_memory(const Placement& placement) {
    static_cast<PlanBody&>(draft_) = {};
    build_steps(analysis_, placement, draft_);
    choose_tiles(draft_);
    assign_memory(draft_);
}

PlanBody PlanBuilder::build(const Placement& placement) {
    build_memory(placement);
    if (fits_memory(draft_)) {
        check_launch_limits(draft_);
        simulate(analysis_, draft_);
    }
    return std::move(static_cast<PlanBody&>(draft_));
}

bool PlanBuilder::fits(const Placement& placement) {
    build_memory(placement);
    return fits_memory(draft_) && fits_limits(draft_);
}

bool fits_memory(const PlanBody& plan) {
    return std::all_of(plan.memory.begin(), plan.memory.end(),
                       [](const DeviceMemory& m) { return m.needed() <= m.capacity; });
}

}  // namespace cleave::planner
