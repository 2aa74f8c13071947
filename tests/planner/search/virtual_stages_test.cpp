// SPDX-License-Identifier: Apache-2.0
// Devices that pins return to: they have several stages, and run the steps of all in order.
#include <cmath>
#include <map>
#include <set>

#include "models/llama_graph.h"
#include "planner/build/build_plan.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;

// Of layers 0-7, 8-15 and 16-31 on two devices; the last are the first device's where it returns.
Plan plan_of_runs(bool returns, const Workload& workload) {
    PlanOptions options{.objective = Objective::kThroughput,
                        .pins = {{"layers.0-7", "sim:h100[0]"}, {"layers.8-15", "sim:h100[1]"}}};
    options.pins.push_back({"layers.16-31", returns ? "sim:h100[0]" : "sim:h100[1]"});
    return make_plan(models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
                     machine_of("sim:h100[0-1]"), workload, options);
}

bool returns(const Plan& plan) {
    std::set<DeviceId> seen;
    for (const Stage& stage : plan.stages)
        for (DeviceId d : stage.devices)
            if (!seen.insert(d).second) return true;
    return false;
}

}  // namespace

TEST_CASE("no pass overtakes another on a device that has several stages", "[planner]") {
    const Plan plan = plan_of_runs(true, {.batch = 64});
    REQUIRE(returns(plan));
    CHECK(plan.prediction.serving.groups == 1);
    CHECK(plan.prediction.serving.tpot_ns >= plan.prediction.decode_ns_per_token);
    const std::string text = plan_to_text(plan);
    CHECK_THAT(text.substr(0, text.find('\n')), Contains("virtual stages"));
    CHECK(serialize_plan(parse_plan(serialize_plan(plan), "memory")) == serialize_plan(plan));
}

TEST_CASE("chunks of a prompt wait for a device that comes back, and else follow the busiest one",
          "[planner]") {
    for (const bool back : {true, false}) {
        Workload workload;
        workload.prompt_tokens = 4 * workload.prefill_chunk;
        workload.context = 8192;
        const Plan plan = plan_of_runs(back, workload);
        INFO((back ? "returns" : "does not return"));
        REQUIRE(returns(plan) == back);
        // Nothing shares bandwidth here: a device is busy for the sum of its steps.
        int64_t first = 0, busiest = 0;
        std::map<DeviceId, int64_t> busy;
        for (const Step& step : plan.prefill.steps) {
            first = std::max(first, step.start_ns + step.predicted_ns);
            for (DeviceId d : step_devices(plan.prefill, step)) busy[d] += step.predicted_ns;
        }
        for (const auto& [device, ns] : busy) busiest = std::max(busiest, ns);
        const auto at_best = static_cast<double>(first + 3 * busiest);
        const auto predicted = static_cast<double>(plan.prediction.prefill_ns);
        if (back)
            CHECK(predicted > 1.1 * at_best);
        else
            CHECK(std::abs(predicted / at_best - 1) < 1e-3);
        CHECK(predicted < 4.001 * static_cast<double>(first));
    }
}

TEST_CASE("no objective takes virtual stages of its own accord", "[planner]") {
    Drawer drawer(3);
    for (int i = 0; i < 100; ++i) {
        Graph graph = models::build_llama_graph(drawer.model({}), DType::kF16);
        Machine machine = drawer.catalogue_machine(5);
        PlanOptions options;
        options.objective = i % 2 ? Objective::kThroughput : Objective::kLatency;
        Plan plan = make_plan(graph, machine, {.batch = 1 + i % 3, .context = 1024}, options);
        INFO("case " << i);
        CHECK_FALSE(returns(plan));
        CHECK(fits_memory(plan));
    }
}

}  // namespace cleave::test
