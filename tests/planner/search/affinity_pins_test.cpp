// SPDX-License-Identifier: Apache-2.0
// From the devices that an ONNX file's nodes name to pins.
#include "planner/search/affinity_pins.h"

#include "models/llama_graph.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;

// Five layers; each operator comes from two nodes, named after it.
Graph imported_graph() {
    Graph graph = models::build_llama_graph(*models::find_shape("stories-260k"), DType::kF32);
    for (importer::Op& op : graph.ops) op.onnx_nodes = {op.name + "/a", op.name + "/b"};
    return graph;
}

Machine hosts(int count) { return machine_of(fmt::format("host[0-{}]", count - 1)); }

// The operators of some layers on a device, by position.
void put(importer::Affinities& a, const Graph& graph, int layer, int position) {
    for (const importer::Op& op : graph.ops)
        if (op.layer == layer)
            for (const std::string& node : op.onnx_nodes) a.nodes.push_back({node, "", position});
}

}  // namespace

TEST_CASE("layers whose nodes agree are one pin, and the plan follows it", "[planner]") {
    Graph graph = imported_graph();
    importer::Affinities a{.path = "m.onnx", .configuration = "two", .num_devices = 2};
    for (int layer = 0; layer < 5; ++layer) put(a, graph, layer, layer < 3 ? 1 : 0);
    a.nodes.push_back({"lm_head/b", "host[0]", -1});
    Machine machine = hosts(2);
    AffinityPins found = pins_from_affinities(graph, a, machine);
    REQUIRE(found.left_out.empty());
    REQUIRE(found.pins.size() == 3);
    CHECK(found.pins[0].what == "layers.0-2");
    CHECK(found.pins[0].device == "host[1]");
    CHECK(found.pins[1].what == "layers.3-4");
    CHECK(found.pins[1].device == "host[0]");
    CHECK(found.pins[2].what == "lm_head");
    PlanOptions options;
    options.pins = found.pins;
    options.tensor_parallel = 1;
    Plan plan = make_plan(graph, machine, {.prompt_tokens = 16, .context = 64}, options);
    for (const Step& step : plan.decode.steps)
        if (const Compute* c = step.compute(); c && step.layer >= 0 && step.layer < 5)
            CHECK(plan.machine.device(c->device).name == (step.layer < 3 ? "host[1]" : "host[0]"));
}

TEST_CASE("a layer on two devices is pinned operator by operator", "[planner]") {
    Graph graph = imported_graph();
    importer::Affinities a{.path = "m.onnx"};
    a.nodes = {{"layers.1.o_proj/a", "host[1]", -1}, {"layers.1.gate_proj/a", "host[0]", -1}};
    AffinityPins found = pins_from_affinities(graph, a, hosts(2));
    REQUIRE(found.pins.size() == 2);
    CHECK(found.pins[0].what == "layers.1.o_proj");
    CHECK(found.pins[1].what == "layers.1.gate_proj");
    CHECK_NOTHROW(
        make_plan(graph, hosts(2), {.prompt_tokens = 16, .context = 64}, {.pins = found.pins}));
}

TEST_CASE("affinities for devices that are not there are left out with the reason", "[planner]") {
    Graph graph = imported_graph();
    importer::Affinities a{.path = "m.onnx"};
    put(a, graph, 0, 1);
    AffinityPins found = pins_from_affinities(graph, a, hosts(1));
    CHECK(found.pins.empty());
    CHECK_THAT(found.left_out, Contains("is to run on device 1, and there is only host[0]"));
    a.nodes = {{"lm_head/a", "cuda[3]", -1}};
    CHECK_THAT(pins_from_affinities(graph, a, hosts(2)).left_out,
               Contains("cuda[3], and there are only 2 devices"));
}

TEST_CASE("an operator whose nodes are on two devices is refused by its nodes", "[planner]") {
    Graph graph = imported_graph();
    importer::Affinities a{.path = "m.onnx"};
    a.nodes = {{"lm_head/a", "host[0]", -1}, {"lm_head/b", "host[1]", -1}};
    CHECK_THAT(user_error([&] { pins_from_affinities(graph, a, hosts(2)); }),
               Contains("'lm_head/a' on host[0], 'lm_head/b' on host[1]") &&
                   Contains("$ignore_affinities"));
}

}  // namespace cleave::test
