// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/objective.h"

#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/support/test.h"

namespace cleave::test {

using namespace planner;

TEST_CASE("every objective has a row in its enumerator's place, and a name of its own",
          "[planner]") {
    std::set<std::string_view> names;
    for (size_t i = 0; i < kObjectives.size(); ++i) {
        const auto objective = static_cast<Objective>(i);
        names.insert(row_of(objective).name);
        CHECK(parse_objective(row_of(objective).name) == objective);
    }
    CHECK(names.size() == kObjectives.size());
    CHECK(row_of(Objective::kLatency).name == "latency");
    CHECK(row_of(Objective::kThroughput).name == "throughput");
    CHECK(row_of(Objective::kMemory).name == "memory");
    CHECK(row_of(Objective::kFleet).name == "fleet");
}

TEST_CASE("an unknown objective is refused with those that are known", "[planner]") {
    const std::string error = user_error([] { parse_objective("speed"); });
    CHECK(error == "no objective is called 'speed'; known are latency, throughput, memory, fleet");
}

TEST_CASE("the schema of plans knows the objectives of the table", "[planner]") {
    const auto schema =
        nlohmann::json::parse(std::ifstream(source_root() / "tools/schema/plan.schema.json"));
    std::vector<std::string> names;
    for (const ObjectiveRow& row : kObjectives) names.emplace_back(row.name);
    CHECK(schema["properties"]["objective"]["enum"] == names);
}

}  // namespace cleave::test
