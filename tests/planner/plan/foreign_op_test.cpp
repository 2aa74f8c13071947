// SPDX-License-Identifier: Apache-2.0
// Graphs of another compiler's operators: divided only as they declare, proved, and unsound as soon
// as a declaration is taken back.
#include <random>

#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/plan/foreign_op.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace cleave::planner;
using namespace cleave::importer;
using Catch::Matchers::Contains;

// Adds operators to a Graph as the C ABI does.
struct Builder {
    Graph graph;

    size_t add(ForeignSplit split, int64_t columns, const std::vector<size_t>& inputs,
               int64_t units = 0, bool with_weight = true) {
        Op op;
        op.kind = OpKind::kTensor;
        op.name = "op" + std::to_string(graph.ops.size());
        for (size_t i : inputs) op.inputs.push_back(graph.ops[i].outputs[0]);
        const int64_t in = inputs.empty() ? 1 : width(inputs[0]);
        const int64_t divided = split == ForeignSplit::kByInput ? in : columns;
        TensorAttrs attrs;
        attrs.op_type = "test.op";
        set_foreign_op(attrs, {split, units > 0 ? units : divided, 2 * columns * in, 64, 16});
        op.attrs = std::move(attrs);
        if (with_weight && !inputs.empty()) {
            Weight w;
            w.name = op.name + ".weight";
            w.dtype = DType::kF8E4M3;
            w.shape = {columns, in};
            w.source_shape = w.shape;
            w.rows = {0, columns};
            w.columns = {0, in};
            op.weights = {WeightId(graph.weights.size())};
            graph.weights.push_back(w);
        }
        op.outputs = {ValueId(graph.values.size())};
        graph.values.push_back({op.name,
                                ValueKind::kTensor,
                                {Dim(std::string("num_tokens")), Dim(columns)},
                                DType::kF16});
        for (ValueId v : op.inputs) std::erase(graph.outputs, v);
        graph.outputs.push_back(op.outputs[0]);
        graph.ops.push_back(std::move(op));
        return graph.ops.size() - 1;
    }
    int64_t width(size_t op) const {
        return graph.value(graph.ops[op].outputs[0]).shape.back().value;
    }
};

// lookup; up, activation, down; add.
Graph mlp(ForeignSplit lookup = ForeignSplit::kRepeated, int64_t heads = 0) {
    Builder b;
    b.graph.name = "mlp";
    const size_t x = b.add(lookup, 64, {});
    const size_t up = b.add(ForeignSplit::kByOutput, 256, {x}, heads);
    const size_t act = b.add(ForeignSplit::kElementwise, 256, {up}, 0, false);
    const size_t down = b.add(ForeignSplit::kByInput, 64, {act}, heads);
    b.add(ForeignSplit::kRepeated, 64, {down, x}, 0, false);
    return b.graph;
}

Plan plan_of(const Graph& graph, int devices, int tp) {
    PlanOptions options;
    options.tensor_parallel = tp;
    return make_plan(graph,
                     build_machine(parse_devices(fmt::format("sim:h100[0-{}]", devices - 1)), {}),
                     {}, options);
}

void declare(Graph& graph, size_t op, ForeignSplit split) {
    std::get<TensorAttrs>(graph.ops[op].attrs).attributes.at(0).integers.at(0) =
        static_cast<int64_t>(split);
}

}  // namespace

TEST_CASE("foreign operators are divided as they declare, in whole units", "[planner]") {
    for (int devices : {2, 3, 4, 5}) {
        const Plan plan = plan_of(mlp(ForeignSplit::kRepeated, 8), devices, devices);
        CHECK(find_violations(plan).empty());
        int sums = 0;
        for (const Step& step : plan.decode.steps)
            if (const Collective* c = step.collective()) {
                ++sums;
                CHECK(c->op == CollectiveOp::kAllReduce);
                CHECK(c->bytes.per_token == 64 * 2);
            }
        CHECK(sums == 1);
        int64_t up = 0, down = 0;
        for (const WeightShard& s : plan.weights) {
            if (s.weight.index() == 0) up += s.rows.size();
            if (s.weight.index() == 1) down += s.columns.size();
            CHECK(s.rows.begin % 32 % (s.weight.index() == 0 ? 32 : 1) == 0);
            if (s.weight.index() == 1) CHECK(s.columns.begin % 32 == 0);
        }
        CHECK(up == 256);
        CHECK(down == 256);
        CHECK(find_violations(parse_plan(serialize_plan(plan), "a test")).empty());
    }
    CHECK_THAT(user_error([] { plan_of(mlp(ForeignSplit::kOnce), 2, 2); }),
               Contains("$tensor_parallel 2") && Contains("'op0' (test.op)"));
    for (const Stage& stage : plan_of(mlp(ForeignSplit::kOnce), 2, 0).stages)
        CHECK(stage.devices.size() == 1);
}

TEST_CASE("the text of a plan of foreign operators says nothing of heads or types", "[planner]") {
    Graph graph = mlp();
    graph.config.num_layers = 3;
    const std::string text = plan_to_text(plan_of(graph, 2, 2));
    CHECK_THAT(text, Contains("5 operators in 3 layers") && Contains("of weights") &&
                         Contains("those of the graph's operators"));
    CHECK_THAT(text, !Contains("heads (") && !Contains("f8e4m3"));
}

TEST_CASE("a plan of foreign operators is unsound once one declares less than the plan takes",
          "[planner]") {
    struct Case {
        size_t op;
        ForeignSplit split;
    };
    const Plan sound = plan_of(mlp(), 2, 2);
    REQUIRE(find_violations(sound).empty());
    for (const Case& c : {Case{0, ForeignSplit::kOnce}, Case{1, ForeignSplit::kRepeated},
                          Case{1, ForeignSplit::kByInput}, Case{2, ForeignSplit::kRepeated},
                          Case{2, ForeignSplit::kByInput}, Case{3, ForeignSplit::kRepeated},
                          Case{3, ForeignSplit::kByOutput}, Case{3, ForeignSplit::kElementwise},
                          Case{4, ForeignSplit::kOnce}}) {
        INFO("operator " << c.op << " as " << static_cast<int>(c.split));
        Plan plan = sound;
        declare(plan.graph, c.op, c.split);
        CHECK(!find_violations(plan).empty());
    }
    Plan shifted = sound;
    for (WeightShard& s : shifted.weights)
        if (s.weight.index() == 0) s.rows = {0, s.rows.size()};
    CHECK(!find_violations(shifted).empty());
    Plan units = sound;  // of two thirds: what was cut in halves is cut inside one
    std::get<TensorAttrs>(units.graph.ops[1].attrs).attributes.at(0).integers.at(1) = 1;
    CHECK(!find_violations(units).empty());
}

TEST_CASE("random graphs of foreign operators are planned soundly on any devices", "[planner]") {
    for (unsigned seed = 0; seed < 60; ++seed) {
        INFO("seed " << seed);
        std::mt19937 random(seed);
        const auto draw = [&](int64_t most) { return static_cast<int64_t>(random() % most); };
        Builder b;
        b.graph.name = "random";
        b.add(ForeignSplit::kRepeated, 32, {});
        const int64_t count = 3 + draw(10);
        for (int64_t i = 0; i < count; ++i) {
            const auto split = static_cast<ForeignSplit>(1 + draw(4));
            const auto in = static_cast<size_t>(draw(static_cast<int64_t>(b.graph.ops.size())));
            std::vector<size_t> inputs{in};
            int64_t columns = int64_t{16} << draw(3);
            if (split == ForeignSplit::kElementwise) {
                columns = b.width(in);
                for (size_t o = 0; o < b.graph.ops.size(); ++o)
                    if (o != in && b.width(o) == columns && draw(3) == 0) inputs.push_back(o);
            }
            const int64_t divided = split == ForeignSplit::kByInput ? b.width(in) : columns;
            b.add(split, columns, inputs, draw(2) ? 0 : divided >> draw(4), draw(3) > 0);
        }
        const int devices = static_cast<int>(1 + draw(4));
        const Plan plan = plan_of(b.graph, devices, draw(2) ? devices : 0);
        CHECK(find_violations(plan).empty());
    }
}

}  // namespace cleave::test
