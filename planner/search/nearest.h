// SPDX-License-Identifier: Apache-2.0
// For a model that does not fit: the placement that comes nearest, and whether a changed request
// would fit. planner/search/refuse.h makes the message of both.
#pragma once

#include <array>
#include <cstdint>

#include "planner/build/build_plan.h"
#include "planner/search/check_options.h"
#include "planner/search/cost_tables.h"
#include "planner/search/refuse.h"

namespace cleave::planner {

// Free memory that the search leaves on each device, in parts per thousand: more where its estimate
// of activations was too low. Tried in this order.
inline constexpr std::array<int64_t, 3> kSlacks{0, 10, 50};

bool quantizes(const Workload& workload);

// The placement whose worst device lacks least, over all devices.
PlanBody nearest_plan(const Analysis& analysis, const Shape& shape, PlanBuilder& builder);

// Answers by building until one plan fits. `given`: the graph before its weights were quantised;
// `analysis`: of the graph after it;
// `requested`: the arithmetic of products that was asked for. Keeps the first three.
Fits fits_of(const Graph& given, const Analysis& analysis, const Workload& workload,
             std::optional<ComputeMode> requested);

}  // namespace cleave::planner
