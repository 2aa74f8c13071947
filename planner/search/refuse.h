// SPDX-License-Identifier: Apache-2.0
// The refusal of a model that does not fit: each device's need, capacity and deficit for the plan that comes nearest,
// and the smallest changes that would fit, each tried before it is named.
#pragma once

#include <functional>

#include "planner/planner.h"

namespace cleave::planner {

// Whether a plan exists for another machine, workload and options.
using Fits = std::function<bool(const Machine&, const Workload&, const PlanOptions&)>;

// `nearest`: a plan with memory accounts, of which at least one device lacks memory.
[[noreturn]] void refuse(const Plan& nearest, const Fits& fits);

}  // namespace cleave::planner
