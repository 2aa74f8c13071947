// SPDX-License-Identifier: Apache-2.0
#include "planner/view/plan_text.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "planner/plan/text_table.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

std::vector<std::string> lines(const std::string& text) {
    std::vector<std::string> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("quantities have three digits and a unit", "[planner]") {
    using namespace planner;
    CHECK(bytes_text(0) == "0 B");
    CHECK(bytes_text(999) == "999 B");
    CHECK(bytes_text(1000) == "1.00 kB");
    CHECK(bytes_text(999'499) == "999 kB");
    CHECK(bytes_text(999'500) == "1.00 MB");
    CHECK(bytes_text(16'060'522'496) == "16.1 GB");
    CHECK(bytes_text(-2'000'000) == "-2.00 MB");
    CHECK(time_text(999) == "999 ns");
    CHECK(time_text(12'340) == "12.3 us");
    CHECK(time_text(1'500'000'000) == "1.50 s");
}

TEST_CASE("a table aligns its columns and leaves out empty ones", "[planner]") {
    planner::TextTable table("<>>", "  ");
    table.row({"name", "", "size"});
    table.row({"a", "", "1"});
    table.line("between");
    table.row({"longer", "", "22"});
    CHECK(table.text(100) == "  name    size\n  a          1\n  between\n  longer    22\n");
    CHECK(table.text(9) == "  name...\n  a   ...\n  between\n  long...\n");
}

TEST_CASE("a table too wide shortens names and keeps numbers whole", "[planner]") {
    planner::TextTable table("<<>", "");
    table.row({"transfer", "sim:h100[0-2], sim:a100-80[0-1], sim:a40[0]", "12.3 us"});
    table.row({"linear", "host[0]", "4.56 ms"});
    std::vector<std::string> rows = lines(table.text(45));
    REQUIRE(rows.size() == 2);
    CHECK(rows[0] == "transfer  sim:h100[0-2], sim:a100...  12.3 us");
    CHECK(rows[1] == "linear    host[0]                     4.56 ms");
}

TEST_CASE("every device that works shows its time for a token", "[planner]") {
    planner::Plan plan = hand_plan({{0, 1}, {2, 3}}, {.layers = 8});
    plan.prediction.decode_ns_per_token = 400'000;
    plan.prediction.decode_busy_ns = {123'000, 124'000, 125'000, 126'000};
    std::string text = plan_to_text(plan);
    for (const char* part : {"a token", "123 us", "124 us", "125 us", "126 us"})
        CHECK(contains(text, part));
}

TEST_CASE("a plan's summary fits its width and names every device, stage and exchange",
          "[planner]") {
    planner::Plan plan = hand_plan({{0, 1}, {2, 3}}, {.layers = 8});
    std::string text = plan_to_text(plan);
    for (const std::string& line : lines(text)) {
        INFO(line);
        CHECK(line.size() <= 100);
    }
    INFO(text);
    CHECK(lines(text).size() < 60);
    for (const char* part :
         {"tiny on 4 devices, tp 2 x pp 2", "8 layers, hidden 16, 4 heads (2 KV)", "host[3]",
          "stage 0 on host[0-1]", "stage 1 on host[2-3]", "layers 0-3 (x 4)", "layers 4-7 (x 4)",
          "arriving", "all_reduce + add", "host[0] -> host[2]", "linear o_proj",
          "norm_linear lm_head", "2 transfers and 18 collectives", "weights read on host[0]"})
        CHECK(contains(text, part));
    CHECK_FALSE(contains(text, "\x1b["));
    CHECK(contains(plan_to_text(plan, {.color = true}), "\x1b[1m"));
}

TEST_CASE("every step stands in the long form of a plan's text", "[planner]") {
    planner::Plan plan = hand_plan({{0}, {1}});
    std::string text = plan_to_text(plan, {.all_steps = true});
    for (const planner::Phase* phase : {&plan.prefill, &plan.decode})
        CHECK(contains(text, fmt::format("\n  {:>2}  ", phase->steps.size() - 1)));
    CHECK(contains(text, "Prefill: 16 tokens in one pass"));
}

TEST_CASE("the text of a plan for many devices folds those alike", "[planner]") {
    std::vector<int> devices;
    for (int i = 0; i < 32; ++i) devices.push_back(i);
    std::string text = plan_to_text(
        hand_plan({devices}, {.heads = 32, .kv_heads = 32, .head_dim = 2, .intermediate = 64}));
    INFO(text);
    CHECK(contains(text, "host[0] .. host[31] (32)"));
    CHECK(lines(text).size() < 50);
    for (const std::string& line : lines(text)) CHECK(line.size() <= 100);
}

TEST_CASE("what METIS did not score has no score in JSON", "[planner]") {
    planner::Plan plan = hand_plan({{0, 1}});
    CHECK(contains(plan_to_json(plan), "\"topological_objective_ms\""));
    plan.why.metis_cost_ns = 0;
    auto metis = nlohmann::json::parse(plan_to_json(plan))["why"]["metis"];
    CHECK(!metis.contains("objective_ms"));
    CHECK(metis.contains("topological_objective_ms"));
}

}  // namespace cleave::test
