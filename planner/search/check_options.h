// SPDX-License-Identifier: Apache-2.0
// Checks what the user asks for against the machine, the graph and the workload, before any search,
// and settles what they left open (the KV dtype, the arithmetic of products). Throws UserError
// naming the flag and the fix.
#pragma once

#include "planner/analysis/analysis.h"
#include "planner/search/pins.h"

namespace cleave::planner {

// Stages x devices a stage that the options force, 0 where they leave it open; and the pins.
struct Shape {
    int tensor_parallel = 0;
    int pipeline_stages = 0;
    PinnedUnits pins;
};

Shape check_options(const Analysis& analysis, const Machine& machine, Workload& workload,
                    const PlanOptions& options);

}  // namespace cleave::planner
