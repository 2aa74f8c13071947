// SPDX-License-Identifier: Apache-2.0
// Launches of several operators over tensors: what they cost, and that what is between their
// operators has no memory.
#include "planner/analysis/tensor_chain.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/foreign_op.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/tensor_graph.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace cleave::planner;
using namespace cleave::importer;
using Catch::Matchers::Contains;

Plan plan_of(const Graph& graph, const char* devices = "sim:h100[0]") {
    return make_plan(graph, build_machine(parse_devices(devices), {}), {}, {});
}

std::vector<size_t> launch_sizes(const Plan& plan) {
    std::vector<size_t> sizes;
    for (const Step& step : plan.decode.steps)
        if (const Compute* c = step.compute()) sizes.push_back(c->ops.size());
    return sizes;
}

using Sizes = std::vector<size_t>;

}  // namespace

TEST_CASE("a launch over tensors reads and writes what crosses its border, and computes all in it",
          "[planner]") {
    const TensorGraph g = tensor_layer();
    const Plan plan = plan_of(g.graph);
    CHECK(find_violations(plan).empty());
    REQUIRE(launch_sizes(plan) == Sizes{4});
    const Compute& c = *plan.decode.steps[0].compute();
    CHECK(c.flops.constant == 2 * 24 * 64 * 10 + 3 * 24 * 10);
    CHECK(c.activation_bytes.constant == 4 * (24 * 64 + 64 * 10 + 10 + 1 + 24 * 10));
    CHECK(c.weight_bytes.constant == 0);
    CHECK(plan.decode.values.size() == 5);  // four inputs, one output
    CHECK_THAT(plan_to_text(plan), Contains("MatMul + Add + Relu + Mul"));
    const Plan again = parse_plan(serialize_plan(plan), "a test");
    CHECK(find_violations(again).empty());
    CHECK(launch_sizes(again) == Sizes{4});
}

TEST_CASE("what another compiler's operator does is not known, and joins no chain", "[planner]") {
    TensorGraph g = tensor_layer();
    set_foreign_op(std::get<TensorAttrs>(g.graph.ops[2].attrs), {});
    CHECK(launch_sizes(plan_of(g.graph)) == Sizes{2, 1, 1});
    CHECK(find_violations(plan_of(g.graph)).empty());
}

TEST_CASE("an operator that reads a part of what the one before it makes ends the chain",
          "[planner]") {
    TensorGraph offset = tensor_layer();
    offset.numbers(2, "offset0") = {9};  // its rows from their ends
    offset.numbers(2, "strides0") = {10, -1};
    CHECK(launch_sizes(plan_of(offset.graph)) == Sizes{2, 2});
    TensorGraph turned = tensor_layer();
    turned.numbers(2, "strides0") = {1, 24};
    CHECK(launch_sizes(plan_of(turned.graph)) == Sizes{2, 2});
    TensorGraph unknown = tensor_layer();
    unknown.graph.ops[0].attrs = [&] {
        TensorAttrs attrs = unknown.graph.ops[0].as<TensorAttrs>();
        attrs.op_type = "RotaryEmbedding";
        return attrs;
    }();
    CHECK(launch_sizes(plan_of(unknown.graph)) == Sizes{1, 3});
}

TEST_CASE("a pipeline over tensors is cut between launches, not inside them", "[planner]") {
    TensorGraph g = tensor_layer();
    ValueId x = g.graph.outputs[0];
    const ValueId wide = g.input({10, 10});
    for (int i = 0; i < 3; ++i) x = g.map("Neg", {g.matmul(x, wide)}, {24, 10});
    g.graph.outputs = {x};
    PlanOptions options;
    options.pipeline_stages = 4;
    const Plan plan =
        make_plan(g.graph, build_machine(parse_devices("sim:h100[0-3]"), {}), {}, options);
    CHECK(find_violations(plan).empty());
    CHECK(launch_sizes(plan) == Sizes{4, 2, 2, 2});
    for (const Step& step : plan.decode.steps)
        if (const Transfer* t = step.transfer()) CHECK(t->bytes.constant == 4 * 24 * 10);
}

TEST_CASE("strides along a chain's dimensions reach the elements that the operand's own reach",
          "[planner]") {
    const std::vector<int64_t> chain{2, 3, 2, 5}, dims{6, 10}, strides{7, 100};
    const std::vector<int64_t> along = strides_along(chain, dims, strides);
    for (int64_t e = 0; e < 60; ++e) {
        int64_t rest = e, place = 0;
        for (size_t d = 4; d-- > 0; rest /= chain[d]) place += rest % chain[d] * along[d];
        CHECK(place == e / 10 * 7 + e % 10 * 100);
    }
    CHECK(strides_along({1}, {}, {}) == std::vector<int64_t>{0});
}

}  // namespace cleave::test
