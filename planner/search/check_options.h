// SPDX-License-Identifier: Apache-2.0
// Checks what the user asks for against the machine, the graph and the workload, before any search,
// and settles what they left open. Throws UserError naming the flag and the fix.
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

// With the arithmetic of products that is chosen where it was left open: fast where all devices are
// hosts and some weights are narrower than f32. Of all devices that serve together, and before the
// graph is analysed.
Workload settled_compute(const Graph& graph, const Machine& machine, Workload workload);

// The type of keys and values: where it was left open that of most weights, of 16 bits or more. Of
// all devices that serve together.
DType settled_kv_dtype(const Graph& graph, const Machine& machine, const Workload& workload);

// Settles the KV dtype, and the chunks of prefill where those are no choice.
Shape check_options(const Analysis& analysis, const Machine& machine, Workload& workload,
                    const PlanOptions& options);

}  // namespace cleave::planner
