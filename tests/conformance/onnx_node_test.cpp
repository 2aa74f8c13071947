// SPDX-License-Identifier: Apache-2.0
// The ONNX standard's own cases, from file to result on the host; onnx_node_cases.txt says of each
// what becomes of it, and is held to that in both directions.
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "runtime/base/errors.h"
#include "tests/conformance/node_case.h"
#include "tests/support/test.h"

using namespace cleave;
using Catch::Matchers::Contains;

namespace {

// pass; refused: a UserError that contains `text`; differs: runs, and gives something else, because
// of `text`.
struct Expectation {
    std::string outcome, text;
};

std::map<std::string, Expectation> read_table() {
    const std::string path =
        (test::source_root() / "tests/conformance/onnx_node_cases.txt").string();
    std::ifstream file(path);
    INFO(path);
    REQUIRE(file.good());
    std::map<std::string, Expectation> table;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        std::istringstream words(line);
        std::string name;
        Expectation e;
        words >> name >> e.outcome;
        std::getline(words >> std::ws, e.text);
        INFO(line);
        REQUIRE((e.outcome == "pass" || e.outcome == "refused" || e.outcome == "differs"));
        REQUIRE((e.outcome == "pass") == e.text.empty());
        REQUIRE(table.emplace(name, e).second);
    }
    return table;
}

std::filesystem::path data_folder() { return test::shared_data() / "onnx-node-tests"; }

// What becomes of a case: "", what differs, or the error.
struct Outcome {
    std::string outcome, text;
};
Outcome run(const std::string& name, const std::string& cpu) {
    try {
        const std::string difference = test::run_node_case(data_folder(), name, cpu);
        if (!difference.empty()) return {"differs", difference};
        return {"pass", ""};
    } catch (const UserError& error) {
        return {"refused", error.what()};
    }
}

// Runs the cases that are wanted, and holds each to its line.
using Select = std::function<bool(const std::string& name)>;
void check_cases(const Select& wanted, const std::string& cpu = "") {
    const auto table = read_table();
    std::map<std::string, int> count;
    for (const std::string& name : test::node_case_names(data_folder())) {
        if (!wanted(name)) continue;
        const auto row = table.find(name);
        const Outcome outcome = run(name, cpu);
        INFO(name << ": " << outcome.outcome << " " << outcome.text);
        if (row == table.end()) {
            FAIL_CHECK("this case is not in onnx_node_cases.txt");
            continue;
        }
        ++count[row->second.outcome];
        CHECK(outcome.outcome == row->second.outcome);
        if (outcome.outcome == "refused") CHECK_THAT(outcome.text, Contains(row->second.text));
    }
    CHECK(count["pass"] + count["refused"] + count["differs"] > 0);
}

bool is_of(const std::string& name, const std::string& op) {
    return name.rfind("test_" + op, 0) == 0;
}
bool is_main(const std::string& name) {
    return is_of(name, "rms_normalization") || is_of(name, "rotary_embedding") ||
           is_of(name, "dequantizelinear");
}
// The operator's function body in place of the operator.
bool is_expanded(const std::string& name) { return name.find("_expanded") != std::string::npos; }

}  // namespace

TEST_CASE("every case of the table is in the data, and every case of the data in the table",
          "[conformance]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const auto table = read_table();
    const std::vector<std::string> names = test::node_case_names(data_folder());
    for (const std::string& name : names) {
        INFO(name);
        CHECK(table.count(name) == 1);
    }
    CHECK(table.size() == names.size());
}

TEST_CASE("Attention is what the ONNX standard says", "[conformance]") {
    CLEAVE_NEEDS_SHARED_DATA();
    check_cases(
        [](const std::string& name) { return is_of(name, "attention") && !is_expanded(name); });
}

TEST_CASE("RMSNormalization, RotaryEmbedding and DequantizeLinear are what the ONNX standard says",
          "[conformance]") {
    CLEAVE_NEEDS_SHARED_DATA();
    check_cases([](const std::string& name) { return is_main(name) && !is_expanded(name); });
}

TEST_CASE("operators written out as their function bodies are computed as what they say",
          "[conformance]") {
    CLEAVE_NEEDS_SHARED_DATA();
    check_cases(is_expanded);
}

TEST_CASE("the other operators over tensors are what the ONNX standard says", "[conformance]") {
    CLEAVE_NEEDS_SHARED_DATA();
    check_cases([](const std::string& name) {
        return !is_of(name, "attention") && !is_main(name) && !is_expanded(name);
    });
}

#ifdef __x86_64__
TEST_CASE("operators that round are what the ONNX standard says on the first CPUs of 64 bits, too",
          "[conformance]") {
    CLEAVE_NEEDS_SHARED_DATA();
    check_cases(
        [](const std::string& name) {
            return is_of(name, "softmax") || is_of(name, "dynamicquantizelinear") ||
                   is_of(name, "swish");
        },
        "x86-64");
}
#endif

TEST_CASE("of the standard's 48 Attention cases without score outputs, at least 40 pass",
          "[conformance]") {
    int cases = 0, passing = 0;
    for (const auto& [name, expectation] : read_table()) {
        if (!is_of(name, "attention") || is_expanded(name) ||
            name.find("qk_matmul") != std::string::npos)
            continue;
        ++cases;
        passing += expectation.outcome == "pass";
    }
    CHECK(cases == 48);
    CHECK(passing >= 40);
}
