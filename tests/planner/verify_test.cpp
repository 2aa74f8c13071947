// SPDX-License-Identifier: Apache-2.0
#include "planner/verify.h"

#include "tests/planner/support/hand_plan.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

std::string violations(const planner::Plan& plan) {
    std::string text;
    for (const planner::Violation& v : planner::find_violations(plan)) text += v.rule + ": " + v.message + "\n";
    return text;
}

}  // namespace

TEST_CASE("plans written by hand are sound", "[planner]") {
    CHECK(violations(hand_plan({{0}})) == "");
    CHECK(violations(hand_plan({{0, 1}})) == "");
    CHECK(violations(hand_plan({{0}, {1}})) == "");
    CHECK(violations(hand_plan({{0, 1}, {2, 3}})) == "");
    CHECK(violations(hand_plan({{2, 3}, {0}})) == "");
    CHECK(violations(hand_plan({{0, 1, 2}}, {.o_bias = true})) == "");
    CHECK(violations(hand_plan({{0, 1, 2, 3, 4, 5, 6, 7}})) == "");
    CHECK(violations(hand_plan({{0, 1, 2}}, {.heads = 8, .kv_heads = 2})) == "");
}

}  // namespace cleave::test
