// SPDX-License-Identifier: Apache-2.0
#include "planner/view/plan_text.h"

#include <sstream>

#include <nlohmann/json.hpp>

#include "models/llama_graph.h"
#include "planner/machine/device_names.h"
#include "planner/plan/objective.h"
#include "planner/plan/text_table.h"
#include "planner/planner.h"
#include "tests/planner/support/hand_plan.h"
#include "tests/planner/support/machines.h"
#include "tests/support/test.h"

namespace cleave::test {

using Catch::Matchers::Contains;

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
    CHECK(table.text(0) == table.text(100));
}

TEST_CASE("a table too wide breaks names and leaves out columns that it tells, and cuts nothing",
          "[planner]") {
    planner::TextTable table("<<>", "");
    table.row({"transfer", "sim:h100[0-2], sim:a100-80[0-1], sim:a40[0]", "12.3 us"});
    table.row({"linear", "host[0]", "4.56 ms"});
    CHECK(table.text(45) == fmt::format("transfer  {:<26}  12.3 us\n"
                                        "          sim:a100-80[0-1],\n"
                                        "          sim:a40[0]\n"
                                        "linear    {:<26}  4.56 ms\n",
                                        "sim:h100[0-2],", "host[0]"));
    CHECK(lines(table.text(0))[0] ==
          "transfer  sim:h100[0-2], sim:a100-80[0-1], sim:a40[0]  12.3 us");

    planner::TextTable columns("<>>>", "");
    columns.row({"", "first", "second", "third"});
    columns.row({"a", "1", "2", "3"});
    columns.may_drop({2, 1});
    CHECK(columns.text(18) ==
          "   first  third\na      1      3\n(18 columns have\nno room for:\nsecond)\n");
    CHECK(columns.text(100) == "   first  second  third\na      1       2      3\n");
    // What may not be left out is there, however narrow it is.
    CHECK_THAT(columns.text(4), Contains("third\na      3\n"));
}

TEST_CASE("whatever the longest word is, no line is longer than the width", "[planner]") {
    const std::string name(300, 'n');
    planner::TextTable table("<>", "  ");
    table.row({"", name + ".plan"});
    table.row({"tokens/s", "8 replicas of tp 4 x pp 2 and 3 replicas of tp 16 x pp 1"});
    for (const int width : {40, 120}) {
        for (const std::string& line : lines(table.text(width))) CHECK(std::ssize(line) <= width);
        for (const std::string& line :
             lines(planner::wrapped("a " + name + " b", 15, width) + "\n"))
            CHECK(std::ssize(line) <= width);
    }
    // Into a file a name is found again.
    CHECK_THAT(planner::wrapped("a " + name, 15, 0), Contains(name));
    CHECK_THAT(table.text(0), Contains(name));
}

TEST_CASE("of very many rows a table has the first ones and the last", "[planner]") {
    planner::TextTable table("<>", "");
    table.row({"moved", "to"});
    for (int i = 0; i < 40; ++i) table.row({fmt::format("layer {}", i), "b"});
    table.fold(40);
    CHECK(lines(table.text(0)).size() == 41);
    table.fold(4);
    CHECK(lines(table.text(0)) == std::vector<std::string>{"moved     to", "layer 0    b",
                                                           "layer 1    b", "layer 2    b",
                                                           "and 36 more", "layer 39   b"});
}

TEST_CASE("names and numbers of many are folded", "[planner]") {
    using planner::folded_names, planner::folded_numbers;
    CHECK(folded_names({"host[0]"}) == "host[0]");
    CHECK(folded_names({"sim:h100[0]", "sim:h100[1]", "sim:h100[2]", "host[0]"}) ==
          "sim:h100[0-2], host[0]");
    CHECK(folded_names({"cuda[3]", "cuda[1]", "cuda[2]"}) == "cuda[3,1-2]");
    CHECK(folded_names({"cuda[0]/0", "cuda[0]/1"}) == "cuda[0]/0-1");
    CHECK(folded_names({"host[0]@a", "host[1]@a", "host[0]@b"}) == "host[0-1]@a, host[0]@b");
    CHECK(folded_names({"cuda[GPU-12]", "mine"}) == "cuda[GPU-12], mine");
    std::vector<std::string> every_eighth;
    for (int i = 0; i < 64; ++i) every_eighth.push_back(fmt::format("sim:h100[{}]", 8 * i));
    CHECK(folded_names(every_eighth) == "sim:h100[0,8,...,504] (64)");
    CHECK(folded_numbers({0, 1, 2, 5}) == "0-2,5");
    std::vector<size_t> widths(16, 9);
    widths.insert(widths.end(), 110, 8);
    CHECK(planner::folded_counts(widths, ", ") == "9 (x 16), 8 (x 110)");
    CHECK(planner::folded_counts({2, 1, 1}, " + ") == "2 + 1 + 1");
    CHECK(planner::span_text("1.20 GB", "1.35 GB") == "1.20-1.35 GB");
    CHECK(planner::span_text("999 ns", "1.00 us") == "999 ns-1.00 us");
    CHECK(planner::span_text("12", "12") == "12");
}

TEST_CASE("every device that works shows its time of a decode pass", "[planner]") {
    planner::Plan plan = hand_plan({{0, 1}, {2, 3}}, {.layers = 8});
    plan.prediction.decode_ns_per_token = 400'000;
    plan.prediction.decode_busy_ns = {123'000, 124'000, 125'000, 126'000};
    std::string text = plan_to_text(plan);
    for (const char* part : {"a pass", "123-124 us", "125 us", "126 us"})
        CHECK(contains(text, part));
}

TEST_CASE("a plan that takes more than twice its bound says what the bound leaves out",
          "[planner]") {
    planner::Plan plan = hand_plan({{0, 1}});
    plan.prediction.objective_ns = 2'000'000;
    plan.prediction.lower_bound_ns = 1'000'001;
    CHECK(contains(plan_to_text(plan), "no plan can take less than 1.00 ms, this one is within"));
    plan.prediction.lower_bound_ns = 999'999;
    const std::string text = plan_to_text(plan);
    INFO(text);
    CHECK(contains(text, "no plan can take less than 1.00 ms, a bound far off: "));
    const std::string_view why = planner::row_of(plan.options.objective).bound;
    CHECK(contains(text, std::string(why.substr(0, why.find(' ')))));
}

TEST_CASE("a host with more cards than the catalogue's servers is told, and no other",
          "[planner]") {
    const importer::Graph graph =
        models::build_llama_graph(*models::find_shape("llama-3-8b"), DType::kBF16);
    const auto text = [&](const char* devices) {
        return plan_to_text(planner::make_plan(graph, machine_of(devices), {}, {}));
    };
    CHECK(
        contains(text("sim:h100[0-9]@a"), "a has 10 h100, where a server of the catalogue has 8"));
    for (const char* devices : {"sim:h100[0-9]", "sim:h100[0-7]@a,sim:h100[8-9]@b"})
        CHECK_FALSE(contains(text(devices), "large host"));
}

TEST_CASE("a plan's summary fits its width and names every device, stage and exchange",
          "[planner]") {
    planner::Plan plan = hand_plan({{0, 1}, {2, 3}}, {.layers = 8});
    std::string text = plan_to_text(plan, {.width = 100});
    for (const std::string& line : lines(text)) {
        INFO(line);
        CHECK(line.size() <= 100);
    }
    INFO(text);
    CHECK(lines(text).size() < 70);
    for (const char* part :
         {"tiny on 4 devices, tp 2 x pp 2", "8 layers, hidden 16, 4 heads (2 KV)", "host[2-3]",
          "stage 0 on host[0-1]", "stage 1 on host[2-3]", "layers 0-3 (x 4)", "layers 4-7 (x 4)",
          "arriving", "all_reduce + add", "host[0-1] -> host[2-3]", "linear o_proj",
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
        hand_plan({devices}, {.heads = 32, .kv_heads = 32, .head_dim = 2, .intermediate = 64}),
        {.width = 100});
    INFO(text);
    CHECK(contains(text, "host[0-31]"));
    CHECK(lines(text).size() < 60);
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
