// SPDX-License-Identifier: Apache-2.0
// Graph + Machine + Workload + options -> Plan. The passes, in order, are in planner/planner.cpp.
#pragma once

#include "planner/plan/plan.h"
#include "planner/search/refuse.h"

namespace cleave::planner {

// Searches and builds the plan, and proves it with verify_plan before returning. Deterministic;
// thread-safe. UserError for options that cannot be met (tp x pp that does not use the devices, a
// pin that contradicts, a prompt longer than the context), DoesNotFit when memory does not suffice.
// Never reads weight bytes.
Plan make_plan(const Graph& graph, const Machine& machine, const Workload& workload,
               const PlanOptions& options);

}  // namespace cleave::planner
