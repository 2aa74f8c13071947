// SPDX-License-Identifier: Apache-2.0
// The commands that ask a plan: answers first, JSON by their schemas, and messages for what cannot
// be asked.
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using Json = nlohmann::json;
using Catch::Contains;
using Arguments = std::vector<std::string>;

Json asked_json(Arguments arguments, const std::string& schema) {
    arguments.emplace_back("--json");
    const CommandResult result = run_cleave(arguments);
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    const Json json = Json::parse(result.output);
    const Json rules =
        Json::parse(read_file(source_root() / fmt::format("tools/schema/{}.schema.json", schema)));
    CHECK(schema_errors(rules, json) == std::vector<std::string>());
    return json;
}

std::string asked_text(const Arguments& arguments) {
    const CommandResult result = run_cleave(arguments);
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    CHECK(result.error.empty());
    return result.output;
}

void check_refused(const Arguments& arguments, const std::string& piece) {
    const CommandResult result = run_cleave(arguments);
    INFO(result.error << result.output);
    CHECK(result.exit_code == 1);
    CHECK(result.output.empty());
    CHECK_THAT(result.error, Contains(piece));
}

const std::string kFour = "sim:h100[0-3]";

Arguments on_four(Arguments question, const Arguments& more = {}) {
    question.insert(question.end(), {"llama-3-8b", "--devices", kFour});
    question.insert(question.end(), more.begin(), more.end());
    return question;
}

}  // namespace

TEST_CASE("why answers in a sentence and as JSON, of each kind of thing", "[tools]") {
    for (const auto& [what, kind] : {std::pair{"layers.12.attention", "part"},
                                     {"embedding", "part"},
                                     {"lm_head", "part"},
                                     {"layers.3", "part"},
                                     {"sim:h100[2]", "device"},
                                     {"model.layers.3.q_proj.weight", "weight"},
                                     {"batch.positions", "buffer"},
                                     {"token", "token"},
                                     {"links", "links"}}) {
        INFO(what);
        const Json json = asked_json(on_four({"why"}, {"--tp", "2", what}), "why");
        CHECK(json["kind"] == kind);
        const std::string text = asked_text(on_four({"why"}, {"--tp", "2", what}));
        CHECK(text.starts_with(json["answer"].get<std::string>()));
    }
    check_refused(on_four({"why"}, {"layers.99"}), "has no layer 99; it has layers 0 to 31");
    check_refused(on_four({"why"}, {"nothing"}), "'nothing' is nothing in this plan");
}

TEST_CASE("why-not answers with the forced plan, or with what forbids it, and exits with 0",
          "[tools]") {
    const Json worse = asked_json(on_four({"why-not"}, {"pp=4"}), "why_not");
    CHECK(worse["verdict"] == "worse");
    CHECK(worse["forced"]["shape"] == "tp 1 x pp 4");
    const Json rule = asked_json(on_four({"why-not"}, {"tp=3"}), "why_not");
    CHECK(rule["verdict"] == "forbidden");
    CHECK_THAT(rule["refusal"]["refusal"].get<std::string>(), Contains("--tp 3 does not divide"));
    const Json memory = asked_json(
        {"why-not", "llama-3-8b", "--devices", "sim:rtx4090[0],sim:rtx4090[1]", "--context", "8192",
         "--batch", "16", "--tp", "1", "layers.0-31=sim:rtx4090[1]"},
        "why_not");
    CHECK(memory["verdict"] == "no memory");
    CHECK(memory["forced"].is_null());
    // Devices that lack the same are one row.
    CHECK_THAT(asked_text({"why-not", "llama-3-8b", "--devices", "sim:rtx4090[0-3]", "--batch",
                           "156", "pp=4"}),
               Contains("sim:rtx4090[1-2]") && Contains("What would fit: "));
    CHECK_THAT(asked_text(on_four({"why-not"}, {"pp=4"})), Contains("room: sequences"));
    check_refused(on_four({"why-not"}, {"quick"}), "'quick' is nothing that can be forced");
}

TEST_CASE("diff says what moved between two saved plans", "[tools]") {
    const TemporaryFolder folder;
    const std::string a = (folder.path() / "a.plan").string(),
                      b = (folder.path() / "b.plan").string();
    CHECK(run_cleave(on_four({"plan"}, {"-o", a})).exit_code == 0);
    CHECK(run_cleave(on_four({"plan"}, {"--pp", "4", "--batch", "8", "-o", b})).exit_code == 0);
    const Json json = asked_json({"diff", a, b}, "diff");
    CHECK_FALSE(json["same"].get<bool>());
    CHECK(json["moved"].size() >= 4);
    CHECK_THAT(asked_text({"diff", a, b}), Contains("layers 0-") && Contains("batch"));
    CHECK(asked_json({"diff", a, a}, "diff")["same"] == true);
    CHECK_THAT(asked_text({"diff", a, a}), Contains("are the same plan"));
    check_refused({"diff", a, "llama-3-8b"}, "diff compares .plan files");
    // The other questions take a saved plan, too.
    asked_json({"why", a, "layers.0"}, "why");
    asked_json({"limits", a}, "limits");
    CHECK(asked_json({"what-if", a, "--batch", "4"}, "what_if")["before"]["room"] ==
          asked_json({"limits", a}, "limits")["now"]["room"]);
}

TEST_CASE("what-if takes several changes, and says what does not fit as an answer", "[tools]") {
    const Json json = asked_json(
        on_four({"what-if"}, {"--add", "sim:h100[4-5]", "--remove", "sim:h100[0]", "--context",
                              "8k", "--batch", "64", "--dtype", "int8", "--link", "nvlink:2x"}),
        "what_if");
    CHECK(json["after"]["devices_given"] == 5);
    CHECK(json["change"] ==
          "sim:h100[4-5] more, without sim:h100[0], batch 64, context 8192, int8 weights, nvlink 2 "
          "times as fast");
    const Json none = asked_json(on_four({"what-if"}, {"--batch", "64k"}), "what_if");
    CHECK(none["after"].is_null());
    CHECK(none["refusal"]["lacks_memory"] == true);
    CHECK_THAT(asked_text(on_four({"what-if"}, {"--batch", "64k"})),
               Contains("What would fit: --kv-tokens "));
    check_refused(on_four({"what-if"}), "what-if changes nothing");
    check_refused(on_four({"what-if"}, {"--batch", "some"}),
                  "--batch some: expected a whole number of 1 or more, such as 64 or 32k");
    for (const char* link : {"nvlink", "nvlink:fast", "nvlink:0x", "nvlink:-1"})
        check_refused(on_four({"what-if"}, {"--link", link}), "expected KIND:Nx");
    check_refused(on_four({"what-if"}, {"--link", "xgmi:2x"}), "no link of the machine");
    check_refused(on_four({"what-if"}, {"--add", "sim:h100[0]"}), "is there already");
    check_refused(on_four({"what-if"}, {"--dtype", "f12"}), "--dtype f12");
}

TEST_CASE("limits says what ends the batch, the context and the KV pool", "[tools]") {
    const Json json = asked_json(on_four({"limits"}, {"--batch", "4"}), "limits");
    const Json& room = json["now"]["room"];
    CHECK(room["max_sequences"].get<int>() > 4);
    const std::string most = std::to_string(room["max_sequences"].get<int>());
    CHECK(run_cleave(on_four({"plan"}, {"--tp", "4", "--batch", most})).exit_code == 0);
    CHECK_THAT(asked_text(on_four({"limits"}, {"--batch", "4"})),
               Contains("The batch may grow from 4 to " + most));
}

TEST_CASE("a sweep is a table, JSON and CSV", "[tools]") {
    const Arguments sweep =
        on_four({"plan"}, {"--sweep", "devices=1,4,8", "--sweep", "batch=1,8k"});
    const Json json = asked_json(sweep, "sweep");
    REQUIRE(json["rows"].size() == 6);
    CHECK(json["rows"][0]["fits"] == true);
    CHECK(json["rows"][1]["fits"] == false);
    CHECK(json["rows"][4]["figures"]["devices_given"] == 8);
    CHECK_THAT(asked_text(sweep), Contains("does not fit") && Contains("it lacks"));
    Arguments csv = sweep;
    csv.insert(csv.end(), {"--csv", "-"});
    std::istringstream lines(asked_text(csv));
    std::string line;
    std::getline(lines, line);
    CHECK(line.starts_with("devices,batch,fits,shape,"));
    const auto fields = std::ranges::count(line, ',');
    int rows = 0;
    while (std::getline(lines, line)) {
        ++rows;
        if (line.find('"') == std::string::npos) CHECK(std::ranges::count(line, ',') == fields);
    }
    CHECK(rows == 6);
    check_refused(on_four({"plan"}, {"--sweep", "speed=1"}), "--sweep 'speed=1': write AXIS=VALUE");
    check_refused(on_four({"plan"}, {"--sweep", "batch=1", "--csv", "-", "--json"}),
                  "--csv - and --json both want standard output");
    check_refused(on_four({"plan"}, {"--sweep", "batch=1", "-o", "x.plan"}),
                  "-o is of one plan, and --sweep makes many");
}

}  // namespace cleave::test
