// SPDX-License-Identifier: Apache-2.0
// What the search compares: an objective times the plan's hardship. Stages are easiest to run, and
// by other tools at all, where each has whole layers and all have one width. A plan that cuts a
// layer in two must gain 3 %, and so must one of unequal widths; one of both 6 %; one of more
// stages up to 1 %. Of latency each doubling of the devices must gain 2 %: devices that add next to
// nothing are left to others. The order is total, so that moves of the search never go round.
// Limits come before all of it.
#pragma once

#include <cstdint>
#include <span>

#include "planner/analysis/analysis.h"
#include "planner/build/placement.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// 1 for one stage; up to 1.07.
double hardship(std::span<const Stage> stages);
double hardship(const Analysis& analysis, const Placement& placement);

// 1 for one device, 1.02 to the logarithm of their number to base 2. Always 1 for objectives that
// serve many, whose devices all serve, and for that of fewest devices, which are counted first.
double cost_of_devices(size_t devices, Objective objective);

// Whether a plan of `ns` is faster than one of `other_ns`, but not by what its further devices
// cost.
bool loses_by_devices(int64_t ns, size_t devices, int64_t other_ns, size_t other_devices,
                      Objective objective);

int64_t weighed_ns(int64_t objective_ns, double hardship);
// Of a plan with its prediction.
int64_t weighed_ns(const PlanBody& plan, Objective objective);

// Of the time that each user may wait for tokens; 0: none.
struct Limits {
    int64_t ttft_ns = 0, tpot_ns = 0;
};
Limits limits_of(const PlanOptions& options);
// By what part of its limit the wait that is worst is longer; 0 where all limits are kept.
double excess(const Limits& limits, const Serving& serving);

// Whether the search takes `a` rather than `b`: it keeps limits that b does not, or is nearer to
// them, or both keep them and it weighs less.
bool is_better(const PlanBody& a, const PlanBody& b, Objective objective, const Limits& limits);

// Whether two stages have operators of one layer.
bool cuts_a_layer(const Analysis& analysis, const Placement& placement);

}  // namespace cleave::planner
