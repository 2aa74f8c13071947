// SPDX-License-Identifier: Apache-2.0
// The number of users that gives most tokens where their number is free: as many plans of one part
// of the devices as it takes to find it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "planner/analysis/analysis.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// A plan and its shape in words.
struct Found {
    Plan plan;
    std::string shape;
};

// Of the best tokens/s: what is below is not refined.
inline constexpr double kFar = 0.7;

// More users than this have no keys and values on the machine, whatever else is there. UserError as
// check_options().
int64_t users_bound(const Analysis& analysis, const Machine& machine, Workload workload,
                    const PlanOptions& options);

// The plan for the number of users that gives most tokens: at most as many as there is KV for and
// as keep the limits, or one, where not even one does; nothing where not even one fits. In:
// `plan_for` a number of users, nothing where it does not fit; `bound`: users_bound() of what it
// plans on; `least` tokens/s, below which it is not looked at further.
std::optional<Found> plan_for_most(const PlanOptions& options, int64_t bound, double least,
                                   std::function<std::optional<Found>(int64_t)> plan_for);

}  // namespace cleave::planner
