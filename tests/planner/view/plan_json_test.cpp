// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "importer/weights/formats.h"
#include "planner/plan/plan_queries.h"
#include "planner/view/plan_text.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/planner/support/json_schema.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using nlohmann::json;

json plan_json(const planner::Plan& plan) { return json::parse(planner::plan_to_json(plan)); }

json schema() {
    return json::parse(std::ifstream(source_root() / "tools/schema/plan.schema.json"));
}

std::vector<planner::Plan> described_plans() {
    return {hand_plan({{0}}), hand_plan({{0, 1}, {2}}, {.layers = 3}),
            hand_plan({{0, 1, 2}}, {.o_bias = true})};
}

}  // namespace

TEST_CASE("the published schema names the types of weights that there are", "[planner]") {
    std::string names;
    const json published = schema();
    for (const json& name : published["properties"]["workload"]["properties"]["dtype"]["enum"])
        names += (names.empty() ? "" : ", ") + name.get<std::string>();
    CHECK(names == importer::weight_dtype_names());
}

TEST_CASE("a plan's JSON is what the published schema says", "[planner]") {
    for (const planner::Plan& plan : described_plans()) {
        auto errors = schema_errors(schema(), plan_json(plan));
        CHECK(errors == std::vector<std::string>());
    }
    json broken = plan_json(hand_plan({{0}}));
    broken["devices"][0].erase("kv_bytes");
    broken["objective"] = "speed";
    broken["steps"][0]["bytes"] = -1;
    broken["extra"] = 1;
    CHECK(schema_errors(schema(), broken).size() == 4);
}

TEST_CASE("a plan's JSON has the keys that other programs read, in their order", "[planner]") {
    auto ordered =
        nlohmann::ordered_json::parse(planner::plan_to_json(hand_plan({{0, 1}, {2, 3}})));
    std::vector<std::string> keys;
    for (auto& [key, unused] : ordered.items()) keys.push_back(key);
    CHECK(keys == std::vector<std::string>{"model", "objective", "workload", "kv_pool", "devices",
                                           "stages", "links", "steps", "predicted", "objective_ms",
                                           "lower_bound_ms", "gap", "pins", "why"});
    CHECK(ordered["model"] == "tiny");
    CHECK(ordered["devices"][3]["stages"] == nlohmann::ordered_json::array({1}));
    CHECK(ordered["stages"][1]["first_op"] == "layers.1.input_norm");
    CHECK(ordered["stages"][1]["last_op"] == "lm_head");
    CHECK(std::abs(ordered["gap"].get<double>() - 0.25) < 1e-9);
    CHECK(std::abs(ordered["predicted"]["tokens_per_second"].get<double>() - 2 / 125e-6) < 1e-6);
}

TEST_CASE("each kind of step has its own keys, and ids count within a phase", "[planner]") {
    json steps = plan_json(hand_plan({{0, 1}, {2, 3}}))["steps"];
    std::set<std::string> kinds;
    std::map<std::string, int> next;
    for (const json& s : steps) {
        CHECK(s["id"] == next[s["phase"]]++);
        kinds.insert(s["kind"]);
        CHECK(s.contains("operators") == (s["kind"] == "compute"));
        CHECK(s.contains("route") == (s["kind"] == "transfer"));
        CHECK(s.contains("group") == (s["kind"] == "collective"));
        if (s["kind"] == "compute") CHECK(s["link_bytes"] == 0);
        if (s["kind"] == "transfer") CHECK(s["bytes"] == s["link_bytes"]);
    }
    CHECK(kinds.size() == 3);
}

TEST_CASE("what links carry adds up to what the steps move", "[planner]") {
    for (const planner::Plan& plan : described_plans())
        for (bool is_prefill : {true, false}) {
            const auto point = planner::pass_point(plan, is_prefill);
            int64_t moved = 0, carried = 0;
            for (const planner::Step& s : plan.phase(is_prefill).steps)
                moved += s.link_bytes.at(point);
            for (auto& [pair, bytes] : planner::link_traffic(plan, is_prefill)) carried += bytes;
            CHECK(moved == carried);
        }
}

TEST_CASE("two devices without a link exchange through their hosts, and the JSON says so",
          "[planner]") {
    planner::Plan plan = hand_plan({{0}, {1}});
    plan.machine.links.clear();
    json links = plan_json(plan)["links"];
    REQUIRE(links.size() == 1);
    CHECK(links[0]["kind"] == "host_staged");
    CHECK(links[0]["bytes_per_token"] == 64.0);
    CHECK(schema_errors(schema(), plan_json(plan)).empty());
}

}  // namespace cleave::test
