// SPDX-License-Identifier: Apache-2.0
// Graphs of operators that nobody knows: planned by their cost and order, never split.
#include "planner/analysis/sharding.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::planner;
using Catch::Matchers::Contains;

namespace {

// A chain of `count` opaque operators with a value that skips from the first to the last.
Graph opaque_chain(int count) {
    using namespace cleave::importer;
    Graph graph;
    graph.name = "opaque";
    auto value = [&](const std::string& name) {
        graph.values.push_back(
            {name, ValueKind::kTensor, {Dim(std::string("batch")), Dim(64)}, DType::kF32});
        return ValueId(graph.values.size() - 1);
    };
    ValueId x = value("x"), first;
    graph.inputs = {x};
    for (int i = 0; i < count; ++i) {
        Op op;
        op.name = "op" + std::to_string(i);
        op.attrs = OpaqueAttrs{"ai.onnx", "Conv", 1'000'000'000, 1'000'000};
        op.inputs = {x};
        if (i == count - 1 && first.valid() && first != x) op.inputs.push_back(first);
        x = value("v" + std::to_string(i));
        if (i == 0) first = x;
        op.outputs = {x};
        graph.ops.push_back(op);
    }
    graph.outputs = {x};
    return graph;
}

}  // namespace

TEST_CASE("opaque operators are cut into stages and never split", "[planner]") {
    Machine machine = build_machine(parse_devices("sim:h100[0-2]"), {});
    for (Objective objective : {Objective::kLatency, Objective::kThroughput, Objective::kMemory}) {
        PlanOptions options;
        options.objective = objective;
        Plan plan = make_plan(opaque_chain(12), machine, {}, options);
        for (const Stage& stage : plan.stages) REQUIRE(stage.devices.size() == 1);
        if (objective == Objective::kMemory) REQUIRE(plan.stages.size() == 1);
    }
    REQUIRE(make_plan(opaque_chain(12), machine, {}, {.pipeline_stages = 3}).stages.size() == 3);
    PlanOptions split;
    split.tensor_parallel = 3;
    REQUIRE_THAT(test::user_error([&] { make_plan(opaque_chain(12), machine, {}, split); }),
                 Contains("$tensor_parallel 3") && Contains("'op0' (ai.onnx.Conv)"));
}

TEST_CASE("a result without elements is refused with its operator's name", "[planner]") {
    Graph graph = opaque_chain(3);
    graph.values[graph.ops[1].outputs[0].index()].shape.back() = importer::Dim(0);
    REQUIRE_THAT(test::user_error([&] {
                     make_plan(graph, build_machine(parse_devices("sim:h100"), {}), {}, {});
                 }),
                 Contains("'op1' (ai.onnx.Conv)") && Contains("'v1' has no elements"));
}

TEST_CASE("an opaque operator's initializers may be numbers, of any type", "[planner]") {
    Graph graph = opaque_chain(2);
    importer::Weight number;
    number.name = "axis";
    number.dtype = DType::kInt64;
    graph.weights = {number};
    graph.ops[0].weights = {WeightId(0)};
    Plan plan = make_plan(graph, build_machine(parse_devices("sim:h100"), {}), {}, {});
    REQUIRE(plan.buffer(plan.weights.at(0).buffer).size == 8);
}

TEST_CASE("ranges follow their weights by the largest remainder and cover everything once",
          "[planner]") {
    for (int64_t units : {0, 1, 7, 32, 172, 11008})
        for (int64_t granule : {1, 16, 64})
            for (std::vector<int64_t> weights : {std::vector<int64_t>{1},
                                                 {1, 1, 1},
                                                 {10000, 1},
                                                 {3, 2, 2},
                                                 {1, 1, 1, 1, 1, 1, 1, 1}}) {
                std::vector<Range> ranges = split_units(units, granule, weights);
                REQUIRE(ranges.size() == weights.size());
                int64_t end = 0, total = 0;
                for (int64_t w : weights) total += w;
                for (size_t i = 0; i < ranges.size(); ++i) {
                    REQUIRE(ranges[i].begin == end);
                    end = ranges[i].end;
                    REQUIRE((end == units || end % granule == 0));
                    double exact = static_cast<double>(units) * static_cast<double>(weights[i]) /
                                   static_cast<double>(total);
                    REQUIRE(std::abs(static_cast<double>(ranges[i].size()) - exact) <=
                            static_cast<double>(2 * granule));
                }
                REQUIRE(end == units);
            }
}

TEST_CASE("a KV head lies wherever one of its query heads does", "[planner]") {
    Split query{Axis::kQueryHeads, 12, 64, 4}, kv{Axis::kKvHeads, 3, 64, 4};
    StageShares shares;
    shares.weights = {1, 1, 1, 1, 1};
    for (bool whole : {true, false}) {
        shares.whole_groups = whole;
        std::vector<Range> q = ranges_of(shares, query), k = ranges_of(shares, kv);
        for (size_t i = 0; i < q.size(); ++i) {
            REQUIRE(q[i].empty() == k[i].empty());
            for (int64_t h = q[i].begin; h < q[i].end; ++h)
                REQUIRE((k[i].begin <= h / 4 && h / 4 < k[i].end));
        }
    }
}
