// SPDX-License-Identifier: Apache-2.0
// Regular plans win unless another one gains more than its hardship.
#include "planner/search/simplicity.h"

#include <cmath>

#include "models/llama_graph.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "planner/planner.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;

Graph bf16_graph_of(const std::string& model) {
    return models::build_llama_graph(*models::find_shape(model), DType::kBF16);
}

bool cuts_layers(const Plan& plan) {
    for (size_t s = 1; s < plan.stages.size(); ++s)
        if (plan.stages[s - 1].first_layer <= plan.stages[s - 1].last_layer &&
            plan.stages[s].first_layer == plan.stages[s - 1].last_layer)
            return true;
    return false;
}

Stage stage_with(size_t devices, int first_layer, int last_layer) {
    Stage stage;
    for (size_t d = 0; d < devices; ++d) stage.devices.emplace_back(d);
    stage.first_layer = first_layer;
    stage.last_layer = last_layer;
    return stage;
}

}  // namespace

TEST_CASE("one stage is easiest, then whole layers in stages of one width", "[planner]") {
    using Stages = std::vector<Stage>;
    const double one = hardship(Stages{stage_with(4, 0, 7)});
    const double two = hardship(Stages{stage_with(2, 0, 3), stage_with(2, 4, 7)});
    const double four = hardship(
        Stages{stage_with(1, 0, 1), stage_with(1, 2, 3), stage_with(1, 4, 5), stage_with(1, 6, 7)});
    const double cut = hardship(Stages{stage_with(2, 0, 4), stage_with(2, 4, 7)});
    const double uneven = hardship(Stages{stage_with(3, 0, 3), stage_with(1, 4, 7)});
    const double without = hardship(Stages{stage_with(1, 0, -1), stage_with(1, 0, 7)});
    CHECK(one == 1);
    CHECK((one < two && two < four && four < 1.01));
    for (const double odd : {cut, uneven, without}) CHECK(odd == Approx(two + 0.03));
    CHECK(hardship(Stages{stage_with(3, 0, 4), stage_with(1, 4, 7)}) == Approx(two + 0.06));
    // A graph without layers has none to cut.
    CHECK(hardship(Stages{stage_with(1, 0, -1), stage_with(1, 0, -1)}) == two);
}

TEST_CASE(
    "a layer is cut in two only where that gains 3 %, and never where whole ones are asked for",
    "[planner]") {
    for (const char* devices : {"sim:rtx4090[0-2]", "sim:a40[0-4]", "host[0-2]"})
        for (const Objective objective : {Objective::kLatency, Objective::kThroughput}) {
            const Graph graph = bf16_graph_of("llama-3.2-1b");
            const auto plan_of = [&](bool whole, int stages) {
                return make_plan(
                    graph, machine_of(devices), {.batch = 8},
                    {.pipeline_stages = stages, .objective = objective, .whole_layers = whole});
            };
            for (const int stages : {0, 3}) {
                INFO(devices << ", " << stages << " stages");
                const Plan free = plan_of(false, stages), whole = plan_of(true, stages);
                CHECK_FALSE(cuts_layers(whole));
                CHECK(weighed_ns(free, objective) <= weighed_ns(whole, objective));
                if (cuts_layers(free))
                    CHECK(1.02 * static_cast<double>(free.prediction.objective_ns) <
                          static_cast<double>(whole.prediction.objective_ns));
            }
        }
}

TEST_CASE("of stages that are unequal in any case, a layer is cut only where that gains 3 %",
          "[planner]") {
    const auto ns = [](const Plan& plan) {
        return static_cast<double>(plan.prediction.objective_ns);
    };
    for (const auto& [devices, stages] : std::vector<std::pair<std::string, int>>{
             {"sim:h100[0-15]", 3}, {"sim:h100[0-31]", 6}, {"sim:h100[0-31]", 5}}) {
        INFO(devices << ", " << stages << " stages");
        const Graph graph = bf16_graph_of("llama-3-8b");
        const Plan free = make_plan(graph, machine_of(devices), {}, {.pipeline_stages = stages});
        const Plan whole = make_plan(graph, machine_of(devices), {},
                                     {.pipeline_stages = stages, .whole_layers = true});
        CHECK(ns(whole) < 1.03 * ns(free));
        CHECK_FALSE(cuts_layers(free));
    }
}

TEST_CASE("of latency a doubling of the devices has to gain 2 %, and the plan says so",
          "[planner]") {
    const Graph graph = bf16_graph_of("llama-3.1-405b");
    const auto plan_of = [&](const std::string& devices, int tensor_parallel) {
        return make_plan(graph, machine_of(devices), {},
                         {.tensor_parallel = tensor_parallel, .objective = Objective::kLatency});
    };
    // Sums over the network take what more devices gain.
    const Plan free = plan_of("sim:h100[0-63]", 0), all = plan_of("sim:h100[0-63]", 64);
    const size_t used = used_devices(free).size();
    REQUIRE(used < 64);
    const double gain = static_cast<double>(free.prediction.objective_ns) /
                        static_cast<double>(all.prediction.objective_ns);
    CHECK(gain < std::pow(1.02, std::log2(64.0 / static_cast<double>(used))));
    if (gain > 1)
        CHECK_THAT(free.why.binding, Contains("each doubling of the devices has to gain 2 %"));
    // Where it gains more it is taken.
    const Plan half = plan_of(fmt::format("sim:h100[0-{}]", used / 2 - 1), 0);
    CHECK(static_cast<double>(half.prediction.objective_ns) >
          1.02 * static_cast<double>(free.prediction.objective_ns));
}

TEST_CASE("the objective of fewest devices says so of those that it leaves out", "[planner]") {
    const Plan plan = make_plan(bf16_graph_of("llama-3-70b"), machine_of("sim:h100[0-7]"), {},
                                {.objective = Objective::kMemory});
    REQUIRE_FALSE(unused_devices(plan).empty());
    CHECK_THAT(plan.why.binding,
               Contains("the objective is fewest devices") && !Contains("has to gain"));
}

TEST_CASE("what whole layers leave no room for is refused by name", "[planner]") {
    const Graph graph = bf16_graph_of("stories-260k");  // 5 layers
    const Workload workload{.prompt_tokens = 16, .context = 64};
    const auto refused = [&](const std::string& devices, PlanOptions options) {
        options.whole_layers = true;
        return user_error([&] { make_plan(graph, machine_of(devices), workload, options); });
    };
    CHECK_THAT(refused("host[0-9]", {.pipeline_stages = 10}), Contains("at most 7 stages"));
    CHECK_THAT(refused("host[0-1]", {.pins = {{"layers.2.attention", "host[0]"},
                                              {"layers.2.down_proj", "host[1]"}}}),
               Contains("$whole_layers: the pins put the two halves of layer 2 on different"));
}

TEST_CASE("a layer that two stages share is shown by its half in each", "[planner]") {
    const Plan plan =
        make_plan(bf16_graph_of("stories-260k"), machine_of("host[0-1]"),
                  {.prompt_tokens = 16, .context = 64},
                  {.pins = {{"layers.2.attention", "host[0]"}, {"layers.2.down_proj", "host[1]"}}});
    REQUIRE(cuts_layers(plan));
    const std::string text = plan_to_text(plan);
    CHECK_THAT(text, Contains("0-1, ") && Contains(" of 2, 3-4"));
    const Plan halves =
        make_plan(bf16_graph_of("stories-260k"), machine_of("host[0-1]"),
                  {.prompt_tokens = 16, .context = 64},
                  {.pins = {{"layers.2.attention", "host[0]"}, {"layers.2.gate_proj", "host[1]"}}});
    CHECK_THAT(plan_to_text(halves), Contains("0-1, attention of 2") && Contains("MLP of 2, 3-4"));
}

}  // namespace cleave::test
