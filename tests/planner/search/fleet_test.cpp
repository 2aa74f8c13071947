// SPDX-License-Identifier: Apache-2.0
// The fewest devices that serve a load, and what they cost.
#include <array>

#include "models/llama_graph.h"
#include "planner/ask/pareto.h"
#include "planner/file/plan_file.h"
#include "planner/machine/build_machine.h"
#include "planner/machine/machine_file.h"
#include "planner/machine/prices.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;

Graph bf16_graph(const std::string& model) {
    return models::build_llama_graph(*models::find_shape(model), DType::kBF16);
}

Plan fleet_of(const Graph& graph, const Machine& machine, int64_t users, int64_t tpot_ms = 0) {
    return make_plan(
        graph, machine, {.batch = users},
        {.objective = Objective::kFleet, .replicas = 0, .max_tpot_ns = tpot_ms * 1'000'000});
}

int64_t devices_taken(const Plan& plan) {
    return plan.num_replicas() * std::ssize(used_devices(plan));
}

// Whether that many of the machine's first devices serve the load by the objective of throughput.
bool is_served(const Graph& graph, const std::string& kind, int64_t devices, int64_t users,
               int64_t tpot_ms) {
    try {
        make_plan(graph, machine_of(fmt::format("sim:{}[0-{}]", kind, devices - 1)),
                  {.batch = users},
                  {.objective = Objective::kThroughput,
                   .replicas = 0,
                   .max_tpot_ns = tpot_ms * 1'000'000});
        return true;
    } catch (const UserError&) {
        return false;
    }
}

Machine with_prices(const std::string& devices, const std::vector<std::string>& prices) {
    Machine machine = machine_of(devices);
    for (const std::string& price : prices) set_price(machine, price);
    return machine;
}

}  // namespace

TEST_CASE("a fleet serves its load, and one device less does not", "[planner]") {
    for (const auto& [model, kind, users, tpot_ms] : {std::tuple{"llama-3-8b", "h100", 64, 10},
                                                      {"llama-3-8b", "rtx4090", 24, 0},
                                                      {"llama-3-70b", "h100", 32, 30},
                                                      {"llama-2-7b", "l40s", 16, 40}}) {
        INFO(model << " for " << users << " users on " << kind);
        const Graph graph = bf16_graph(model);
        const Plan plan =
            fleet_of(graph, machine_of(fmt::format("sim:{}[0-7]", kind)), users, tpot_ms);
        REQUIRE(find_violations(plan).empty());
        CHECK(plan.prediction.serving.users == users);
        if (tpot_ms > 0) CHECK(plan.prediction.serving.tpot_ns <= tpot_ms * 1'000'000);
        const int64_t taken = devices_taken(plan);
        CHECK(is_served(graph, kind, taken, users, tpot_ms));
        if (taken > 1) CHECK_FALSE(is_served(graph, kind, taken - 1, users, tpot_ms));
        CHECK(plan.prediction.lower_bound_ns <= plan.prediction.objective_ns);
        CHECK(serialize_plan(parse_plan(serialize_plan(plan), "memory")) == serialize_plan(plan));
        CHECK_THAT(plan_to_text(plan), Contains("unused"));
    }
}

TEST_CASE("more users and tighter limits never take fewer devices", "[planner]") {
    const Graph graph = bf16_graph("llama-3-8b");
    const Machine machine = machine_of("sim:l40s[0-7]");
    int64_t last = 0;
    for (const int64_t users : {1, 8, 32, 64, 128}) {
        const int64_t taken = devices_taken(fleet_of(graph, machine, users, 60));
        CHECK(taken >= last);
        last = taken;
    }
    CHECK(devices_taken(fleet_of(graph, machine, 32, 25)) >=
          devices_taken(fleet_of(graph, machine, 32, 60)));
}

TEST_CASE("of several kinds the fewest are taken, with prices the cheapest", "[planner]") {
    const Graph graph = bf16_graph("llama-3-8b");
    const std::string both = "sim:l40s[0-7],sim:h100[0-7]";
    const Plan fewest = fleet_of(graph, machine_of(both), 64);
    CHECK(fewest.machine.devices[0].model == "h100");
    CHECK(cost_per_million_tokens(fewest) == 0);
    const Plan dear = fleet_of(graph, with_prices(both, {"h100=90", "l40s=1"}), 64);
    CHECK(dear.machine.devices[0].model == "l40s");
    CHECK(devices_taken(dear) > devices_taken(fewest));
    CHECK(price_micros_per_hour(dear) < 90'000'000 * devices_taken(fewest));
    CHECK_THAT(user_error([&] { fleet_of(graph, with_prices(both, {"h100=90"}), 64); }),
               Contains("sim:h100[0] has a price and sim:l40s[0] has none"));
}

TEST_CASE("of fleets that cost alike the faster is taken, and no other one is the same",
          "[planner]") {
    const Graph graph = bf16_graph("llama-3-8b");
    for (const char* both : {"sim:h100[0-3],sim:l40s[0-3]", "sim:l40s[0-3],sim:h100[0-3]"}) {
        INFO(both);
        const Plan plan = fleet_of(graph, machine_of(both), 32);
        CHECK(plan.machine.devices[0].model == "h100");
        REQUIRE_FALSE(plan.why.runners_up.empty());
        CHECK(plan.why.runners_up[0].shape == "sim:l40s[0]");
        CHECK(plan.why.runners_up[0].why_not == "takes 1 device as well, and is slower");
        for (const RunnerUp& other : plan.why.runners_up) CHECK(other.shape != "sim:h100[0]");
    }
}

TEST_CASE("a fleet of a given shape and number of replicas takes their devices and no more",
          "[planner]") {
    const Graph graph = bf16_graph("llama-3-8b");
    const auto fleet = [&](int64_t users) {
        return make_plan(graph, machine_of("sim:l40s[0-7]"), {.batch = users},
                         {.tensor_parallel = 2,
                          .pipeline_stages = 1,
                          .objective = Objective::kFleet,
                          .replicas = 2});
    };
    CHECK(devices_taken(fleet(16)) == 4);
    CHECK_THAT(user_error([&] { fleet(4000); }),
               !Contains("give 4 devices") && !Contains("does not take"));
}

TEST_CASE("a load that no part of the machine serves is refused as the whole machine is",
          "[planner]") {
    const Graph graph = bf16_graph("llama-3-8b");
    const Machine machine = machine_of("sim:l40s[0-1]");
    CHECK_THAT(user_error([&] { fleet_of(graph, machine, 64, 1); }),
               Contains("no plan keeps $max_tpot 1 for 64 users"));
    CHECK_THAT(user_error([&] {
                   make_plan(graph, machine, {},
                             {.objective = Objective::kFleet, .replicas = 0, .most_users = true});
               }),
               Contains("how many users"));
    CHECK_THAT(user_error([&] {
                   make_plan(graph, machine, {.batch = 2},
                             {.objective = Objective::kFleet,
                              .replicas = 0,
                              .pins = {{"layers.0", "sim:l40s[0]"}}});
               }),
               Contains("pins name them"));
}

TEST_CASE("a cost is prices of the devices used over tokens, and is kept in files", "[planner]") {
    const Graph graph = bf16_graph("llama-3-8b");
    const Machine machine = with_prices("sim:h100[0-3]", {"h100=2.5", "sim:h100[1]=3.5"});
    const Plan plan = make_plan(graph, machine, {.batch = 64},
                                {.objective = Objective::kThroughput, .replicas = 0});
    REQUIRE(devices_taken(plan) == 4);
    CHECK(price_micros_per_hour(plan) == 11'000'000);
    CHECK(cost_per_million_tokens(plan) ==
          Approx(11.0 / 3600 / tokens_per_second(plan) * 1e6).epsilon(1e-12));
    CHECK(cost_per_million_tokens(parse_plan(serialize_plan(plan), "memory")) ==
          cost_per_million_tokens(plan));
    const std::string json = machine_to_json(machine);
    CHECK(machine_to_json(parse_machine(json, "memory")) == json);
    CHECK_THAT(plan_to_text(plan), Contains("a million tokens: 4 devices cost 11 an hour"));
    Machine without = machine;
    without.devices[2].price_micros = 0;
    CHECK(cost_per_million_tokens(
              make_plan(graph, without, {.batch = 64},
                        {.objective = Objective::kThroughput, .replicas = 0})) == 0);
}

TEST_CASE("a price is refused that is none, or of no device", "[planner]") {
    Machine machine = machine_of("sim:h100[0-1],host[0]");
    for (const char* text : {"h100", "h100=", "=2", "h100=free", "h100=-1", "h100=0", "h100=2x"})
        CHECK_THAT(user_error([&] { set_price(machine, text); }), Contains("MODEL=PRICE"));
    CHECK_THAT(user_error([&] { set_price(machine, "a100=2"); }), Contains("there are h100, host"));
    set_price(machine, "h100=2");
    const std::string json = machine_to_json(machine);
    for (const char* price : {"-1", "1e9", "\"two\""}) {
        std::string changed = json;
        const std::string key = "\"price_per_hour\": ";
        changed.replace(changed.find(key) + key.size(), 3, price);
        CHECK_THAT(user_error([&] { parse_machine(changed, "memory"); }),
                   Contains("devices[0].price_per_hour is"));
    }
}

TEST_CASE("no point of a Pareto list is as good as another in both figures", "[planner]") {
    const planner::Case base{
        bf16_graph("llama-3-8b"), with_prices("sim:h100[0-3]", {"h100=2"}), {}, {}};
    const Pareto list = pareto(base);
    REQUIRE(list.points.size() >= 4);
    REQUIRE(list.points.size() <= kMostPoints);
    for (size_t i = 0; i < list.points.size(); ++i) {
        const ParetoPoint& p = list.points[i];
        CHECK(p.devices * p.replicas <= 4);
        CHECK(p.cost_per_million > 0);
        // The figures of one plan: users times a user's is devices times a device's.
        CHECK(p.per_user * static_cast<double>(p.users) ==
              Approx(p.per_device * static_cast<double>(p.devices * p.replicas)));
        if (i == 0) continue;
        CHECK(p.per_user < list.points[i - 1].per_user);
        CHECK(p.per_device > list.points[i - 1].per_device);
    }
    // Both ends are the best plans of one user and of as many as there is room for.
    const Plan one = make_plan(base.graph, base.machine, {},
                               {.objective = Objective::kThroughput, .replicas = 1});
    CHECK(list.points.front().per_user >= 0.999 * tokens_per_second(one));
    const Plan most =
        make_plan(base.graph, base.machine, {},
                  {.objective = Objective::kThroughput, .replicas = 0, .most_users = true});
    CHECK(list.points.back().per_device >= 0.98 * tokens_per_second(most) / 4);
}

TEST_CASE("a Pareto list counts the devices that a plan uses, not those beside them", "[planner]") {
    // The A40s are in no plan of a few users of tensor parallelism.
    const planner::Case base{
        bf16_graph("qwen3-8b"), machine_of("sim:h100[0-3],sim:a40[0-2]"), {}, {}};
    const Pareto list = pareto(base);
    REQUIRE_FALSE(list.points.empty());
    const ParetoPoint& first = list.points.front();
    CHECK(first.shape == "tp 4 x pp 1");
    CHECK(first.devices == 4);
}

TEST_CASE("points that others beat leave the list, and of very many both ends stay", "[planner]") {
    std::vector<ParetoPoint> points;
    for (int i = 1; i <= 40; ++i)
        for (const double worse : {1.0, 0.9})
            points.push_back({.shape = "", .per_device = worse * i, .per_user = 100.0 / i});
    const std::vector<ParetoPoint> best = best_points(points);
    REQUIRE(best.size() == kMostPoints);
    CHECK(best.front().per_user == 100);
    CHECK(best.back().per_device == 40);
    for (const ParetoPoint& p : best) CHECK(p.per_device == Approx(100 / p.per_user));
}

}  // namespace cleave::test
