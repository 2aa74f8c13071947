// SPDX-License-Identifier: Apache-2.0
// The second mode: for throughput a device may have several runs of operators.
#include <cmath>
#include <map>
#include <set>

#include "models/llama_graph.h"
#include "planner/build/build_plan.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/plan_queries.h"
#include "planner/planner.h"
#include "planner/search/propose.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;

Plan throughput_plan(const std::string& model, const std::string& devices, int pp = 0) {
    PlanOptions options;
    options.objective = Objective::kThroughput;
    options.pipeline_stages = pp;
    if (pp) options.tensor_parallel = 1;
    return make_plan(models::build_llama_graph(*models::find_shape(model), DType::kBF16),
                     machine_of(devices), {}, options);
}

// Whether a device has two stages with another's between.
bool returns(const Plan& plan) {
    std::set<DeviceId> left;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
        for (DeviceId d : plan.stages[s].devices)
            if (left.count(d)) return true;
        if (s > 0)
            left.insert(plan.stages[s - 1].devices.begin(), plan.stages[s - 1].devices.end());
    }
    return false;
}

}  // namespace

TEST_CASE("virtual stages raise the throughput of a model whose lm_head weighs as much as layers",
          "[planner]") {
    Plan free = throughput_plan("llama-3-8b", "sim:h100[0-7]");
    Plan runs = throughput_plan("llama-3-8b", "sim:h100[0-7]", 8);
    REQUIRE(returns(free));
    REQUIRE_FALSE(returns(runs));
    CHECK(static_cast<double>(free.prediction.objective_ns) <
          0.97 * static_cast<double>(runs.prediction.objective_ns));
    CHECK(free.prediction.objective_ns >= free.prediction.lower_bound_ns);
    CHECK(find_violations(free).empty());
    std::string text = plan_to_text(free);
    CHECK_THAT(text.substr(0, text.find('\n')),
               Contains("tp 1 x pp 8 in") && Contains("virtual stages"));
    // Saved and read again, it is the same plan.
    CHECK(serialize_plan(parse_plan(serialize_plan(free), "memory")) == serialize_plan(free));
}

TEST_CASE("chunks of a prompt wait for a device that comes back, and else follow the busiest one",
          "[planner]") {
    for (int pp : {0, 8}) {
        PlanOptions options;
        options.objective = Objective::kThroughput;
        options.pipeline_stages = pp;
        if (pp) options.tensor_parallel = 1;
        Workload workload;
        workload.prompt_tokens = 4 * workload.prefill_chunk;
        workload.context = 8192;
        Plan plan =
            make_plan(models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
                      machine_of("sim:h100[0-7]"), workload, options);
        INFO(pp << " stages asked for");
        REQUIRE(returns(plan) == (pp == 0));
        // Nothing shares bandwidth here: a device is busy for the sum of its steps.
        int64_t first = 0, busiest = 0;
        std::map<DeviceId, int64_t> busy;
        for (const Step& step : plan.prefill.steps) {
            first = std::max(first, step.start_ns + step.predicted_ns);
            for (DeviceId d : step_devices(plan.prefill, step)) busy[d] += step.predicted_ns;
        }
        for (const auto& [device, ns] : busy) busiest = std::max(busiest, ns);
        auto at_best = static_cast<double>(first + 3 * busiest);
        auto predicted = static_cast<double>(plan.prediction.prefill_ns);
        if (pp)
            CHECK(std::abs(predicted / at_best - 1) < 1e-3);
        else
            CHECK(predicted > 1.2 * at_best);
        CHECK(predicted < 4.001 * static_cast<double>(first));
    }
}

TEST_CASE("latency never takes virtual stages, and a forced shape has the stages asked for",
          "[planner]") {
    Drawer drawer(3);
    for (int i = 0; i < 100; ++i) {
        Graph graph = models::build_llama_graph(drawer.model({}), DType::kF16);
        Machine machine = drawer.catalogue_machine(5);
        Plan plan = make_plan(graph, machine, {.context = 1024}, {});
        INFO("case " << i);
        CHECK_FALSE(returns(plan));
    }
}

TEST_CASE(
    "plans with virtual stages on random machines verify and count every device's memory once",
    "[planner]") {
    Drawer drawer(4);
    int returned = 0;
    for (int i = 0; i < 200; ++i) {
        Graph graph = models::build_llama_graph(
            drawer.model({.layers = 6, .intermediate = 30'000, .vocab = 128'000}), DType::kF16);
        Machine machine = drawer.catalogue_machine(4);
        PlanOptions options;
        options.objective = Objective::kThroughput;
        Plan plan = make_plan(graph, machine, {.batch = 1 + i % 3, .context = 1024}, options);
        INFO("case " << i);
        returned += returns(plan);
        CHECK(fits_memory(plan));
        std::set<std::pair<DeviceId, WeightId>> held;
        for (const WeightShard& s : plan.weights)
            if (s.rows.size() == graph.weight(s.weight).shape[0] && plan.stages.size() > 1 &&
                graph.weight(s.weight).shape.size() == 2 &&
                s.columns.size() == graph.weight(s.weight).shape[1])
                CHECK(held.insert({s.device, s.weight}).second);
    }
    CHECK(returned > 20);
}

}  // namespace cleave::test
