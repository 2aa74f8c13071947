// SPDX-License-Identifier: Apache-2.0
// Replicas of several makes. In: a machine, the best plan of replicas that are alike on it, and how
// a part of it is planned. Out: plans of parts that are not alike, such as a kind of devices each,
// every one for the users that it serves as fast as the others serve theirs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "planner/plan/plan.h"

namespace cleave::planner {

// Whether they are a choice: of free shapes and a free number of replicas, for a throughput, on
// several devices; of more than 32 where they are of several kinds.
bool may_have_makes(const Machine& machine, const PlanOptions& options);

// The best plan with `others`, or of a part of the machine, where it is worth more than `alike`:
// each make brings 3 % more tokens; or where there is none alike (null); else nothing. `plan_on`
// plans replicas that are alike on a part of the machine for that many users, or, without a number,
// for as many as it chooses; nothing where none fits. `users`: none, where each make chooses.
// `plan_outside`: the best plan alike on all of it without limits, whose parts may keep them;
// nothing where there are none, or none fits. It is called for few devices.
std::optional<Plan> plan_makes(
    const Machine& machine, const Plan* alike, std::optional<int64_t> users,
    const std::function<std::optional<Plan>(const Machine& part, std::optional<int64_t> users)>&
        plan_on,
    const std::function<std::optional<Plan>()>& plan_outside);

}  // namespace cleave::planner
