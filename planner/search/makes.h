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

// The best plan with `others`, where it gives 3 % more tokens than `alike`, which is simpler, or
// where there is none alike (null); else nothing. `plan_on` plans replicas that are alike on a part
// of the machine for that many users, or, with most_users, as many as it chooses; nothing where
// none fits.
std::optional<Plan> plan_makes(
    const Machine& machine, const Plan* alike, bool most_users, int64_t users,
    const std::function<std::optional<Plan>(const Machine& part, int64_t users)>& plan_on);

}  // namespace cleave::planner
