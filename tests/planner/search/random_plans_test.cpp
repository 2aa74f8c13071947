// SPDX-License-Identifier: Apache-2.0
// Models, machines and workloads drawn at random, planned: what always holds of a plan and its
// views.
#include <array>
#include <fstream>
#include <sstream>

#include "models/llama_graph.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/json_schema.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;

Plan random_plan(Drawer& d) {
    models::Shape shape = d.model({.layers = 6,
                                   .kv_heads = 6,
                                   .queries_of_a_kv_head = 5,
                                   .head_dims = 8,
                                   .head_dim_step = 4,
                                   .hidden_steps = 20,
                                   .intermediate = 200,
                                   .vocab = 300,
                                   .biases = true,
                                   .bf16 = true});
    Workload workload{.batch = d.pick(1, 4), .prompt_tokens = d.pick(1, 64)};
    workload.context = workload.prompt_tokens + d.pick(0, 64);
    workload.prefill_chunk = d.pick(1, 100);
    workload.all_logits = d.pick(0, 3) == 0;
    const int devices = d.pick(1, 9);
    PlanOptions options{.objective = static_cast<Objective>(d.pick(0, 2))};
    const int tp = d.pick(1, devices);
    if (d.pick(0, 1) && devices % tp == 0 && devices / tp <= shape.config.num_layers) {
        options.tensor_parallel = tp;
        options.pipeline_stages = devices / tp;
    }
    const char* kind = d.one_of(std::array{"host", "sim:h100", "sim:a40"});
    // A ninth device of the catalogue is in a second node.
    const bool nodes = devices > 8 && kind[0] == 's';
    const Machine machine = build_machine(parse_devices(fmt::format("{}[0-{}]", kind, devices - 1)),
                                          small_host(2), nullptr, {nodes ? "eth100" : ""});
    return make_plan(models::build_llama_graph(shape, shape.dtype), machine, workload, options);
}

}  // namespace

TEST_CASE("1,000 random plans are sound, survive their file, fit the screen's width and the schema",
          "[planner]") {
    Drawer drawer(1);
    const auto schema =
        nlohmann::json::parse(std::ifstream(source_root() / "tools/schema/plan.schema.json"));
    for (int i = 0; i < cases(1000); ++i) {
        INFO("plan " << i);
        Plan plan = random_plan(drawer);  // verifies it, too
        std::string bytes = serialize_plan(plan);
        Plan again = parse_plan(bytes, "memory");
        REQUIRE(find_violations(again).empty());
        REQUIRE(serialize_plan(again) == bytes);
        std::istringstream text(plan_to_text(plan, {.width = 100}));
        for (std::string line; std::getline(text, line);) REQUIRE(line.size() <= 100);
        if (i % 20 == 0)  // the check takes longer than the plan
            REQUIRE(schema_errors(schema, nlohmann::json::parse(plan_to_json(plan))) ==
                    std::vector<std::string>());
    }
}

}  // namespace cleave::test
