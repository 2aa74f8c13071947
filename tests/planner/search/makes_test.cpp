// SPDX-License-Identifier: Apache-2.0
// Replicas of several makes: parts of a machine that are not alike, each with a plan of its own.
#include "planner/search/makes.h"

#include <set>

#include <fmt/format.h>

#include "models/llama_graph.h"
#include "planner/file/plan_file.h"
#include "planner/plan/plan_queries.h"
#include "planner/plan/used_devices.h"
#include "planner/planner.h"
#include "planner/verify/verify.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/random_cases.h"
#include "tests/support/fields.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using namespace planner;
using Catch::Matchers::Contains;

Plan plan_for(const std::string& devices, int64_t users, PlanOptions options = {.replicas = 0}) {
    options.objective = Objective::kThroughput;
    return make_plan(models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
                     machine_of(devices), {.batch = users}, options);
}

// One fast card and two slow ones.
constexpr const char* kUnlike = "sim:h100[0],sim:rtx3090[0-1]";

}  // namespace

TEST_CASE("devices that are not alike serve many users as replicas of several makes",
          "[planner][makes]") {
    const Plan plan = plan_for(kUnlike, 100);
    REQUIRE(plan.others.size() == 1);
    CHECK(find_violations(plan).empty());
    const Plan alike = plan_for(kUnlike, 100, {.replicas = 1});
    CHECK(alike.others.empty());
    CHECK(tokens_per_second(plan) >= 1.03 * tokens_per_second(alike));
    // The rate is of each make for its own users, and all users are somebody's.
    const Plan& other = plan.others[0];
    CHECK(served_users(plan) == 100);
    CHECK(plan.prediction.serving.users + other.prediction.serving.users == 100);
    Plan first = plan;
    first.others.clear();
    CHECK(tokens_per_second(plan) == Approx(tokens_per_second(first) + tokens_per_second(other)));
    CHECK(tokens_per_second(first) > tokens_per_second(other));
    CHECK(static_cast<double>(plan.prediction.objective_ns) ==
          Approx(100e9 / tokens_per_second(plan)));
    CHECK(plan.prediction.lower_bound_ns <= plan.prediction.objective_ns);
    // Each device is in one replica.
    const std::vector<std::string> names = all_device_names(plan);
    CHECK(names.size() == 3);
    CHECK(std::set<std::string>(names.begin(), names.end()).size() == 3);
    CHECK(plan.machine.devices[0].name == "sim:h100[0]");
}

TEST_CASE(
    "replicas of several makes are taken where they give 3 % more, and never where the "
    "user forces something",
    "[planner][makes]") {
    CHECK(plan_for("sim:h100[0-3]", 64).others.empty());
    for (const PlanOptions& forced :
         {PlanOptions{.replicas = 1}, PlanOptions{.tensor_parallel = 1, .replicas = 0},
          PlanOptions{.pipeline_stages = 3, .replicas = 0}})
        CHECK(plan_for(kUnlike, 100, forced).others.empty());
    for (const int64_t users : {2, 8, 24, 60, 100}) {
        INFO(users);
        const Plan free = plan_for(kUnlike, users), one = plan_for(kUnlike, users, {.replicas = 1});
        CHECK(tokens_per_second(free) >= 0.97 * tokens_per_second(one));
        if (!free.others.empty()) CHECK(tokens_per_second(free) >= 1.03 * tokens_per_second(one));
    }
    const Plan latency =
        make_plan(models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
                  machine_of(kUnlike), {.batch = 100}, {.objective = Objective::kLatency});
    CHECK(latency.others.empty());
}

TEST_CASE("without a number of users each make has as many as it serves best", "[planner][makes]") {
    const Plan plan = plan_for(kUnlike, 1, {.replicas = 0, .most_users = true});
    REQUIRE(plan.others.size() == 1);
    CHECK(find_violations(plan).empty());
    const Plan alone = plan_for("sim:h100[0]", 1, {.replicas = 0, .most_users = true});
    CHECK(tokens_per_second(plan) > 1.03 * tokens_per_second(alone));
    CHECK(served_users(plan) > served_users(alone));
}

TEST_CASE("a plan of several makes is the same behind its file, which has the graph once",
          "[planner][makes]") {
    const Plan plan = plan_for(kUnlike, 100);
    REQUIRE(plan.others.size() == 1);
    const std::string bytes = serialize_plan(plan);
    const Plan again = parse_plan(bytes, "memory");
    REQUIRE(again.others.size() == 1);
    CHECK(same(plan, again));
    CHECK(same(plan.others[0], again.others[0]));
    CHECK(serialize_plan(again) == bytes);
    Plan deep = plan;
    deep.others[0].others.push_back(plan.others[0]);
    CHECK_THAT(user_error([&] { parse_plan(serialize_plan(deep), "memory"); }),
               Contains("has replicas of other makes"));
    Plan damaged = plan;
    damaged.others[0].stages[0].devices[0] = DeviceId(77);
    CHECK_THAT(user_error([&] { parse_plan(serialize_plan(damaged), "memory"); }),
               Contains("damaged"));
}

TEST_CASE("each replica of several makes is a plan by itself, with its own users and devices",
          "[planner][makes]") {
    const Plan plan = plan_for("sim:h100[0-1],sim:rtx3090[0-3]", 200);
    REQUIRE(plan.others.size() == 1);
    REQUIRE(plan.num_replicas() > 2);
    int64_t users = 0;
    std::vector<std::string> names;
    for (int64_t r = 0; r < plan.num_replicas(); ++r) {
        const Plan one = replica_plan(plan, r);
        CHECK(one.num_replicas() == 1);
        CHECK(find_violations(one).empty());
        CHECK(one.machine.devices[0].name == replica_machine(plan, r).devices[0].name);
        users += one.prediction.serving.users;
        for (const DeviceInfo& d : one.machine.devices) names.push_back(d.name);
    }
    CHECK(users == 200);
    CHECK(names == all_device_names(plan));
}

TEST_CASE("the text of a plan tells each make's devices, users and rate", "[planner][makes]") {
    const Plan plan = plan_for(kUnlike, 100);
    REQUIRE(plan.others.size() == 1);
    const std::string text = plan_to_text(plan);
    CHECK_THAT(text, Contains("on 3 devices") && Contains("100 users on 2 replicas") &&
                         Contains("another make") && Contains("on sim:rtx3090[0-1]: ") &&
                         Contains("in a replica as the first"));
}

TEST_CASE("limits that no replicas alike keep are kept by replicas of several makes", "[planner]") {
    const Graph graph = models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16);
    const Machine machine = machine_of("sim:h100[0],sim:l40s[0]");
    const auto plan_of = [&](const Machine& on, int64_t users, int64_t max_tpot_ns) {
        return make_plan(
            graph, on, {.batch = users},
            {.objective = Objective::kThroughput, .replicas = 0, .max_tpot_ns = max_tpot_ns});
    };
    // What each kind needs for its part of the users, where one alone is slower.
    const int64_t h100 = plan_of(machine_of("sim:h100[0]"), 32, 0).prediction.serving.tpot_ns;
    const int64_t l40s = plan_of(machine_of("sim:l40s[0]"), 2, 0).prediction.serving.tpot_ns;
    const int64_t limit = std::max(h100, l40s);
    const Plan plan = plan_of(machine, 34, limit);
    for (const Plan* make : makes_of(plan)) CHECK(make->prediction.serving.tpot_ns <= limit);
    CHECK(served_users(plan) == 34);
    CHECK_THAT(user_error([&] { plan_of(machine, 34, 1'000'000); }),
               Contains("no plan keeps $max_tpot 1 for"));
}

TEST_CASE("tens of devices of a second kind cost no tokens, whether they hold a replica or not",
          "[planner][makes]") {
    struct Case {
        const char *model, *devices, *more;
        int64_t users;
        bool serves;
    };
    for (const Case& c :
         {Case{"llama-3-70b", "sim:h100[0-31]", "sim:a100-80[0-15]", 256, true},
          Case{"llama-3.1-405b", "sim:h100[0-63]", "sim:a100-80[0-7]", 512, false}}) {
        CAPTURE(c.model);
        const Graph graph = models::build_llama_graph(*models::find_shape(c.model), DType::kBF16);
        const auto plan_on = [&](const std::string& devices) {
            return make_plan(graph, machine_of(devices), {.batch = c.users},
                             {.objective = Objective::kThroughput, .replicas = 0});
        };
        const Plan both = plan_on(fmt::format("{},{}", c.devices, c.more));
        CHECK(find_violations(both).empty());
        CHECK(served_users(both) == c.users);
        CHECK(tokens_per_second(both) >= 0.99 * tokens_per_second(plan_on(c.devices)));
        CHECK(both.others.size() == (c.serves ? 1 : 0));
        const bool told = both.why.binding.find("no replica on them fits") != std::string::npos;
        CHECK(told == !c.serves);
    }
}

TEST_CASE("users who have room keep their rate when their number is given", "[planner][makes]") {
    const auto rate_of = [](const std::string& devices, const char* shape, int64_t users,
                            DType dtype) {
        PlanOptions options{.objective = Objective::kThroughput, .replicas = 0};
        options.most_users = users == 0;
        Workload workload{.batch = std::max<int64_t>(users, 1)};
        workload.dtype = dtype;
        const Plan plan =
            make_plan(models::build_llama_graph(*models::find_shape(shape), DType::kBF16),
                      machine_of(devices), workload, options);
        CHECK(find_violations(plan).empty());
        return std::pair(served_users(plan), tokens_per_second(plan));
    };
    // Of the second the shares by bandwidth do not fit; of the last the plan of all the users uses
    // all cards at once.
    for (const auto& [devices, shape, dtype] :
         {std::tuple(kUnlike, "llama-3-8b", DType::kBF16),
          std::tuple("sim:h100[0-2],sim:l4[0-2]", "mistral-7b", DType::kInt8),
          std::tuple("sim:a40[0-2],sim:h100[0-3]", "qwen3-8b", DType::kBF16),
          std::tuple("sim:h200[0-6]", "gemma-3-12b", DType::kBF16)}) {
        INFO(devices);
        const auto [users, free] = rate_of(devices, shape, 0, dtype);
        CHECK(rate_of(devices, shape, users, dtype).second >= 0.99 * free);
    }
}

TEST_CASE("replicas of cards and of a host hold keys and values of one type", "[planner][makes]") {
    PlanOptions options{.objective = Objective::kThroughput, .replicas = 0};
    options.most_users = true;
    Workload workload;
    workload.dtype = DType::kInt4;
    const Plan plan =
        make_plan(models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16),
                  machine_of("sim:h100[0],sim:rtx4090[0],sim:host[0]"), workload, options);
    CHECK(plan.workload.kv_dtype == DType::kF16);
    // A host brings less than 3 % of the tokens.
    for (const std::string& name : all_device_names(plan)) CHECK(name != "sim:host[0]");
}

TEST_CASE("a card of a further kind costs no tokens, and limits that are kept cost no plan",
          "[planner][makes]") {
    const auto rate_of = [](const std::string& devices, const char* shape, Workload workload,
                            int64_t max_tpot_ns) {
        PlanOptions options{.objective = Objective::kThroughput, .replicas = 0};
        options.max_tpot_ns = max_tpot_ns;
        return tokens_per_second(
            make_plan(models::build_llama_graph(*models::find_shape(shape), DType::kBF16),
                      machine_of(devices), workload, options));
    };
    Workload workload{.batch = 64};
    workload.context = 2048;
    workload.dtype = DType::kInt4;
    const std::string three = "sim:l40s[0-1],sim:rtx5090[0]";
    CHECK(rate_of(three + ",sim:l4[0]", "qwen2.5-32b", workload, 0) >=
          rate_of(three, "qwen2.5-32b", workload, 0));
    workload = {.batch = 819};
    workload.dtype = DType::kF8E4M3;
    const std::string eleven = "sim:rtx4090[0-10]/11";
    const double free = rate_of(eleven, "qwen2.5-7b", workload, 0);
    CHECK(rate_of(eleven, "qwen2.5-7b", workload, 22'000'000) >= 0.99 * free);
}

}  // namespace cleave::test
