// SPDX-License-Identifier: Apache-2.0
// Breaks sound plans in one way each; the verifier must name the broken rule.
#include <set>

#include "models/llama_graph.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/planner/support/machines.h"
#include "tests/planner/support/mutations.h"
#include "tests/planner/support/tensor_graph.h"
#include "tests/support/plan_forms.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

Plan plan_on(const Machine& machine, int tp, int pp, std::vector<Pin> pins = {},
             std::optional<DType> kv_dtype = {}) {
    Workload workload{.batch = 2, .prompt_tokens = 32, .context = 128, .kv_dtype = kv_dtype};
    auto shape = models::find_shape("stories-260k");
    REQUIRE(shape);
    return make_plan(models::build_llama_graph(*shape, DType::kF32), machine, workload,
                     {.tensor_parallel = tp, .pipeline_stages = pp, .pins = std::move(pins)});
}

Plan made_plan(int devices, int tp, int pp, const char* kind = "host", std::vector<Pin> pins = {},
               std::optional<DType> kv_dtype = {}) {
    return plan_on(machine_of(fmt::format("{}[0-{}]", kind, devices - 1), small_host(2)), tp, pp,
                   std::move(pins), kv_dtype);
}

// Two operators over tensors, each with an initializer, on a device each.
Plan tensor_plan() {
    using namespace importer;
    Graph graph;
    graph.name = "tensors";
    const auto value = [&](const char* name) {
        graph.values.push_back({name, ValueKind::kTensor, {Dim(2), Dim(8)}, DType::kF16});
        return ValueId(graph.values.size() - 1);
    };
    ValueId x = value("x");
    graph.inputs = {x};
    for (const char* name : {"y", "z"}) {
        Weight scale;
        scale.name = std::string(name) + ".scale";
        scale.dtype = DType::kInt64;  // as stored, whatever that is
        scale.shape = scale.source_shape = {8};
        graph.weights.push_back(scale);
        Op op;
        op.kind = OpKind::kTensor;
        op.name = name;
        op.attrs = TensorAttrs{"Add",
                               {{"x0", 0, DType::kF16, {2, 8}}, {"x1", -1, DType::kInt64, {8}}},
                               {{"y", 0, DType::kF16, {2, 8}}},
                               {},
                               16};
        op.inputs = {x};
        op.weights = {WeightId(graph.weights.size() - 1)};
        x = value(name);
        op.outputs = {x};
        graph.ops.push_back(op);
    }
    graph.outputs = {x};
    return make_plan(graph, machine_of("host[0-1]", small_host(2)), {}, {.pipeline_stages = 2});
}

std::vector<Plan> sound_plans() {
    std::vector<Plan> plans;
    plans.push_back(hand_plan({{0}}));
    plans.push_back(hand_plan({{0}, {1}}));
    plans.push_back(hand_plan({{0, 1}, {2, 3}}));
    plans.push_back(hand_plan({{0, 1, 2}}, {.o_bias = true}));
    plans.push_back(hand_plan({{0, 1, 2, 3, 4, 5, 6, 7}}, {.heads = 6, .kv_heads = 2}));
    plans.push_back(made_plan(1, 1, 1));
    plans.push_back(made_plan(4, 2, 2));
    plans.push_back(made_plan(3, 3, 1));
    plans.push_back(made_plan(8, 8, 1));
    plans.push_back(made_plan(2, 2, 1, "host", {}, DType::kInt8));
    plans.push_back(made_plan(4, 2, 2, "sim:mi210"));
    norms_in_readers(plans.back());
    const Machine hosts = machine_of("sim:h100[0-1]@a,sim:h100[0-1]@b");
    plans.push_back(plan_on(hosts, 4, 1));
    plans.push_back(plan_on(hosts, 2, 2));
    norms_in_readers(plans.back());
    plans.push_back(
        made_plan(2, 1, 0, "host",
                  {{"layers.0", "host[0]"}, {"layers.1-3", "host[1]"}, {"layers.4", "host[0]"}}));
    plans.push_back(made_plan(
        2, 1, 2, "host", {{"layers.2.attention", "host[0]"}, {"layers.2.down_proj", "host[1]"}}));
    return plans;
}

void check_mutations(const std::vector<Plan>& plans, const std::vector<Mutation>& mutations) {
    for (const Plan& plan : plans) REQUIRE(find_violations(plan).empty());
    for (const Mutation& m : mutations) {
        int applied = 0;
        for (const Plan& plan : plans) {
            Plan broken = plan;
            if (!m.apply(broken)) continue;
            ++applied;
            std::set<std::string> rules;
            for (const Violation& v : find_violations(broken)) rules.insert(v.rule);
            std::string found;
            for (const std::string& rule : rules) found += rule + " ";
            INFO(m.name << " in plan " << &plan - plans.data() << ": wanted " << m.rule
                        << ", found " << found);
            CHECK(rules.count(m.rule) == 1);
        }
        INFO(m.name << " applies to no plan");
        CHECK(applied > 0);
    }
}

}  // namespace

TEST_CASE("each way of breaking a plan is caught for its own reason", "[planner]") {
    const std::vector<Mutation> mutations = all_mutations();
    CHECK(mutations.size() >= 30);
    check_mutations(sound_plans(), mutations);
}

TEST_CASE("each way of breaking a norm that rides on a sum is caught for its own reason",
          "[planner]") {
    const std::vector<Plan> plans{made_plan(4, 2, 2, "sim:mi210"), made_plan(3, 3, 1, "sim:h100")};
    for (const Plan& plan : plans) REQUIRE(count_norms(plan.decode) > 0);
    check_mutations(plans, norm_mutations());
}

TEST_CASE("each way of breaking what a plan says of many users is caught for its own reason",
          "[planner]") {
    std::vector<Plan> plans;
    // Two replicas of two devices, two groups in flight over two stages, replicas of two makes.
    for (const int replicas : {2, 1})
        plans.push_back(make_plan(
            models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
            machine_of("sim:h100[0-3]"), {.batch = 64},
            {.tensor_parallel = 2, .objective = Objective::kThroughput, .replicas = replicas}));
    REQUIRE(plans.front().copies.size() == 1);
    REQUIRE(plans.back().prediction.serving.groups == 2);
    plans.push_back(
        make_plan(models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
                  machine_of("sim:h100[0],sim:rtx3090[0-1]"), {.batch = 100},
                  {.objective = Objective::kThroughput, .replicas = 0}));
    REQUIRE(plans.back().others.size() == 1);
    check_mutations(plans, serving_mutations());
}

TEST_CASE("each way of breaking a plan over tensors is caught for its own reason", "[planner]") {
    check_mutations({tensor_plan()}, tensor_mutations());
}

TEST_CASE("each way of breaking a launch of several operators over tensors is caught",
          "[planner]") {
    TensorGraph g = tensor_layer();
    const importer::ValueId x = g.matmul(g.graph.outputs[0], g.input({10, 10}));
    g.graph.outputs = {g.map("Neg", {x}, {24, 10})};
    const Plan plan = make_plan(g.graph, build_machine(parse_devices("sim:h100[0]"), {}), {}, {});
    check_mutations({plan}, tensor_chain_mutations());
    check_mutations({plan}, tensor_chain_operand_mutations());
}

TEST_CASE("a plan that is not sound is refused with the rules it breaks", "[planner]") {
    Plan plan = hand_plan({{0}, {1}});
    erase_step(plan.decode, nth_step<Transfer>(plan.decode));
    std::string message = user_error([&] { verify_plan(plan); });
    CHECK(message.find("operand-not-ready: decode step") != std::string::npos);
    CHECK(message.find("host[1]") != std::string::npos);
    CHECK(message.find("$save_plan") != std::string::npos);
}

}  // namespace cleave::test
