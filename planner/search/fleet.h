// SPDX-License-Identifier: Apache-2.0
// The fewest devices that serve a load, or, where all have prices, the cheapest: of one kind, or of
// the machine's first ones. A load that so many devices serve is taken to be served by more.
#pragma once

#include <functional>
#include <optional>

#include "planner/plan/plan.h"

namespace cleave::planner {

struct Fleet {
    Plan plan;
    Machine machine;  // the devices that were taken
};

// The most devices that a fleet may take, the first ones: all, or as many as a given shape and
// number of replicas take. Where these do not serve, the refusal is theirs.
Machine largest_fleet(const Machine& machine, const PlanOptions& options);

// `plan_on` a part of the machine, nothing where that does not serve the load. Nothing where no
// part does. UserError where some devices have prices and others have none.
std::optional<Fleet> fewest_devices(
    const Machine& machine, const PlanOptions& options,
    const std::function<std::optional<Plan>(const Machine&)>& plan_on);

}  // namespace cleave::planner
