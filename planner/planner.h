// SPDX-License-Identifier: Apache-2.0
// Graph + Machine + Workload + options -> Plan. The passes, in order, are in planner/planner.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "planner/plan/plan.h"
#include "planner/search/refuse.h"

namespace cleave::planner {

// Of one pass of make_plan, when it has run.
struct PassNote {
    std::string_view pass;
    int64_t ns = 0;
    bool proved = false;  // the verifier found the plan that it left sound
};

// How the passes are run and watched. Nothing of it is part of the plan.
struct PassControl {
    std::function<void(const PassNote&)> note;  // called on the caller's thread, in order
    // Prove the plan after each pass that leaves one: InternalError names the pass. Debug builds
    // do.
#ifdef CLEAVE_DEBUG
    bool prove_each = true;
#else
    bool prove_each = false;
#endif
    // Build every placement of small requests. Without it they are searched like large ones, which
    // is how tests measure the search.
    bool enumerate = true;
    // Of a forced shape, say what the other shapes cost (search/shapes_beside.h).
    bool shapes_beside = true;
};

// Searches and builds the plan, and proves it with verify_plan before returning. Deterministic;
// thread-safe. UserError for options that cannot be met (tp x pp that does not use the devices, a
// pin that contradicts, a prompt longer than the context), DoesNotFit when memory does not suffice.
// Never reads weight bytes.
Plan make_plan(const Graph& graph, const Machine& machine, const Workload& workload,
               const PlanOptions& options, const PassControl& control = {});

}  // namespace cleave::planner
