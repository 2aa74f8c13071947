// SPDX-License-Identifier: Apache-2.0
// The passes, in order.
#include "planner/planner.h"

#include "planner/baselines.h"
#include "planner/memory.h"
#include "planner/options.h"
#include "planner/placement.h"
#include "planner/simulate.h"
#include "planner/steps.h"
#include "planner/tiles.h"

namespace cleave::planner {

Plan make_plan(const Graph& graph, const Machine& machine, const Workload& workload, const PlanOptions& options) {
    Plan plan;
    plan.graph = graph;
    plan.graph_digest = importer::graph_digest(graph);
    plan.machine = machine;
    plan.workload = workload;
    plan.options = options;
    Analysis analysis = analyse(plan.graph);
    Shape shape = check_options(analysis, plan.machine, plan.workload, options);
    int tp = shape.tensor_parallel > 0 ? shape.tensor_parallel : static_cast<int>(machine.devices.size()) / std::max(1, shape.pipeline_stages);
    int pp = shape.pipeline_stages > 0 ? shape.pipeline_stages : static_cast<int>(machine.devices.size()) / tp;
    Placement placement = equal_units(analysis, machine, tp, pp);
    build_steps(analysis, placement, plan);
    choose_tiles(plan);
    assign_memory(plan);
    simulate(analysis, plan);
    return plan;
}

}  // namespace cleave::planner
