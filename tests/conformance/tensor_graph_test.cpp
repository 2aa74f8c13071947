// SPDX-License-Identifier: Apache-2.0
// Graphs over tensors that the standard has no case for: several operators, several devices, and
// what is refused.
#include <cmath>
#include <cstring>

#include "runtime/base/errors.h"
#include "tests/conformance/model_writer.h"
#include "tests/conformance/node_case.h"
#include "tests/support/test.h"

using namespace cleave;
using Catch::Matchers::Contains;
using runtime::Tensor;
using test::floats, test::integers, test::ModelWriter;

namespace {

// Norm, rotation and attention of one layer, 2 sequences of 3 tokens, 4 heads of 8 over 2 KV heads.
ModelWriter small_layer() {
    ModelWriter w;
    w.input("x", {2, 3, 32});
    w.input("k", {2, 3, 16});
    w.input("positions", {2, 3}, onnx::TensorProto::INT64);
    w.constant("scale", {32}, std::vector<float>(32, 1.5f));
    std::vector<float> cos, sin;
    for (int p = 0; p < 10; ++p)
        for (int i = 0; i < 4; ++i) {
            cos.push_back(static_cast<float>(std::cos(p * std::pow(10.0, -i))));
            sin.push_back(static_cast<float>(std::sin(p * std::pow(10.0, -i))));
        }
    w.constant("cos", {10, 4}, cos);
    w.constant("sin", {10, 4}, sin);
    w.node("RMSNormalization", {"x", "scale"}, {"normed"});
    w.number(w.node("RotaryEmbedding", {"normed", "cos", "sin", "positions"}, {"turned"}),
             "num_heads", 4);
    onnx::NodeProto& attention = w.node("Attention", {"turned", "k", "k"}, {"y"});
    w.number(attention, "q_num_heads", 4);
    w.number(attention, "kv_num_heads", 2);
    w.number(attention, "is_causal", 1);
    w.output("y");
    return w;
}

std::vector<Tensor> small_layer_inputs() {
    return {floats("x", {2, 3, 32}), floats("k", {2, 3, 16}),
            integers("positions", {2, 3}, {0, 1, 2, 4, 5, 6})};
}

std::vector<Tensor> run(planner::Plan plan, const std::vector<Tensor>& inputs) {
    runtime::SessionOptions options;
    options.poison = true;
    runtime::Session session(plan, options);
    std::vector<Tensor> first = session.run_tensors(inputs);
    const std::vector<Tensor> second = session.run_tensors(inputs);
    for (size_t i = 0; i < first.size(); ++i) CHECK(first[i].data == second[i].data);
    return first;
}

}  // namespace

TEST_CASE("a graph over tensors gives the same bytes on one device and as a pipeline of three",
          "[conformance]") {
    const importer::Graph graph = small_layer().graph();
    const std::vector<Tensor> one = run(test::plan_tensors(graph), small_layer_inputs());
    planner::PlanOptions options;
    options.pipeline_stages = 3;
    planner::Plan plan = test::plan_tensors(graph, "host[0-2]", options);
    CHECK(plan.stages.size() == 3);
    const std::vector<Tensor> three = run(plan, small_layer_inputs());
    REQUIRE(one.size() == 1);
    CHECK(one[0].data == three.at(0).data);
    for (double v : test::elements_of(one[0])) CHECK(std::isfinite(v));
}

TEST_CASE("causal attention over tensors ignores keys behind the query", "[conformance]") {
    planner::Plan plan = test::plan_tensors(small_layer().graph());
    std::vector<Tensor> inputs = small_layer_inputs();
    const std::vector<double> before = test::elements_of(run(plan, inputs)[0]);
    // The last key of the first sequence.
    for (size_t i = 2 * 16; i < 3 * 16; ++i) {
        const float changed = 3.0f;
        std::memcpy(inputs[1].data.data() + i * sizeof(float), &changed, sizeof(changed));
    }
    const std::vector<double> after = test::elements_of(run(plan, inputs)[0]);
    for (size_t i = 0; i < before.size(); ++i) {
        const bool last_query = i / 32 == 2;
        INFO("element " << i);
        CHECK((before[i] == after[i]) == !last_query);
    }
}

TEST_CASE("tensors that do not fit are refused by name", "[conformance]") {
    planner::Plan plan = test::plan_tensors(small_layer().graph());
    runtime::Session session(plan, {});
    const auto error = [&](std::vector<Tensor> inputs) {
        return test::user_error([&] { session.run_tensors(inputs); });
    };
    std::vector<Tensor> inputs = small_layer_inputs();
    inputs.pop_back();
    CHECK_THAT(error(inputs), Contains("'positions'") && Contains("is not given"));
    inputs = small_layer_inputs();
    inputs[0].name = "X";
    CHECK_THAT(error(inputs), Contains("no input 'X'") && Contains("'x' (f32 [2, 3, 32])"));
    inputs = small_layer_inputs();
    inputs[0].shape = {2, 32, 3};
    CHECK_THAT(error(inputs), Contains("'x' is f32 [2, 32, 3]") && Contains("f32 [2, 3, 32]"));
    inputs = small_layer_inputs();
    inputs[1].data.pop_back();
    CHECK_THAT(error(inputs), Contains("'k'") && Contains("383 bytes, not 384"));
    inputs = small_layer_inputs();
    inputs.push_back(inputs[0]);
    CHECK_THAT(error(inputs), Contains("'x' is given twice"));
    inputs = small_layer_inputs();
    inputs[2] = integers("positions", {2, 3}, {0, 1, 2, 4, 10, 6});
    CHECK_THAT(error(inputs), Contains("'positions' holds 10 at place 4") && Contains("0 to 9"));
    const runtime::Batch pass{{0}, {0}, {0}, {0, 1}, {}, true};
    CHECK_THAT(test::user_error([&] { session.run(std::span(&pass, 1)); }),
               Contains("no language model") && Contains("'positions' (int64 [2, 3])"));
}

TEST_CASE("what keeps a graph over tensors from running is named with its reason",
          "[conformance]") {
    const auto error = [](const ModelWriter& w) {
        planner::Plan plan = test::plan_tensors(w.graph());
        return test::user_error([&] { runtime::Session session(plan, {}); });
    };
    ModelWriter unknown = small_layer();
    unknown.node("Hardmax", {"y"}, {"z"});
    unknown.output("z");
    CHECK_THAT(error(unknown), Contains("Hardmax_z") && Contains("Cleave computes no Hardmax"));
    ModelWriter odd;
    odd.input("q", {1, 2, 4, 8});
    odd.input("k", {1, 2, 4, 6});
    odd.node("Attention", {"q", "k", "k"}, {"y"});
    odd.output("y");
    CHECK_THAT(error(odd), Contains("do not go together") && Contains("[1, 2, 4, 6]"));
    ModelWriter dynamic;
    dynamic.input("x", {-1, 4});
    dynamic.node("Softmax", {"x"}, {"y"});
    dynamic.output("y");
    const importer::Graph graph = dynamic.graph();
    CHECK_THAT(graph.notes.back(), Contains("'x'") && Contains("no number"));
}
