// SPDX-License-Identifier: Apache-2.0
// The lower bound is below every plan's score: drawn over models, machines, objectives and forced
// shapes.
#include "models/llama_graph.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {

using namespace planner;

TEST_CASE("no plan scores less than the lower bound, whatever the objective and the shape forced",
          "[planner]") {
    Drawer drawer(5);
    for (int i = 0; i < cases(600); ++i) {
        models::Shape shape = drawer.model({.layers = 6,
                                            .kv_heads = 4,
                                            .queries_of_a_kv_head = 5,
                                            .hidden_steps = 256,
                                            .intermediate = 8000,
                                            .vocab = 30'000});
        Machine machine = drawer.any_machine(5);
        Workload workload{.batch = drawer.pick(1, 8), .prompt_tokens = drawer.pick(1, 600)};
        workload.context = workload.prompt_tokens + drawer.pick(0, 600);
        workload.prefill_chunk = drawer.pick(1, 512);
        PlanOptions options{.objective = static_cast<Objective>(i % 4)};
        auto devices = static_cast<int>(machine.devices.size());
        int tp = drawer.pick(1, devices);
        if (drawer.pick(0, 3) > 0 && devices % tp == 0 && devices / tp <= shape.config.num_layers) {
            options.tensor_parallel = tp;
            options.pipeline_stages = devices / tp;
        }
        Plan plan =
            make_plan(models::build_llama_graph(shape, i % 3 == 0 ? DType::kBF16 : DType::kF16),
                      machine, workload, options);
        INFO("case " << i << " on " << devices << " devices, " << plan.stages.size()
                     << " stages, objective " << row_of(options.objective).name);
        REQUIRE(plan.prediction.lower_bound_ns > 0);
        REQUIRE(plan.prediction.objective_ns >= plan.prediction.lower_bound_ns);
        REQUIRE(gap(plan) >= 0);
    }
}

TEST_CASE("what a fast card has no memory for is in the bound at a slow device's rate",
          "[planner]") {
    // 14 GB of 40 must be read by a host of 40 GB/s.
    const Plan plan =
        make_plan(models::build_llama_graph(*models::find_shape("llama-3-70b"), DType::kBF16),
                  machine_of("sim:rtx4090[0],sim:host[0]"), {.dtype = DType::kInt4}, {});
    CHECK(plan.prediction.lower_bound_ns >= 300'000'000);
    CHECK(gap(plan) < 0.5);
}

}  // namespace cleave::test
