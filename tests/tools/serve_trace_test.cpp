// SPDX-License-Identifier: Apache-2.0
// `cleave run --serve-trace`: a trace served on real devices beside its forecast.
#include <fstream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
using Json = nlohmann::json;
using Catch::Contains;

namespace {

const char* const kTrace =
    "arrival_ms,prompt_tokens,output_tokens\n0,40,12\n0,3,30\n1,100,2\n1,9000,5\n3,17,16\n";

CommandResult replay(const std::string& trace, std::vector<std::string> more) {
    std::vector<std::string> arguments{"run", bundled_model().string(), "--batch",
                                       "3",   "--serve-trace",          trace};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_cleave(arguments);
}

Json served(const std::string& trace, std::vector<std::string> more) {
    more.push_back("--json");
    const CommandResult result = replay(trace, more);
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    Json json = Json::parse(result.output);
    const Json schema = Json::parse(read_file(source_root() / "tools/schema/replay.schema.json"));
    CHECK(schema_errors(schema, json).empty());
    return json;
}

}  // namespace

TEST_CASE("a replay serves the requests of its forecast on any devices, and refuses the same",
          "[tools]") {
    TemporaryFolder folder;
    const std::string trace = (folder.path() / "trace.csv").string();
    std::ofstream(trace) << kTrace;
    for (const std::vector<std::string>& devices :
         {std::vector<std::string>{"--devices", "host[0-1]", "--pp", "2"},
          std::vector<std::string>{"--devices", "host", "--overcommit", "--kv-tokens", "512"},
          std::vector<std::string>{"--devices", "host[0-1]", "--objective", "throughput",
                                   "--replicas", "2"}}) {
        const Json json = served(trace, devices);
        const Json &predicted = json["predicted"], &measured = json["measured"];
        INFO(json.dump());
        for (const char* key : {"requests", "refused", "refusal", "prompt_tokens", "output_tokens",
                                "kv_tokens", "token_budget", "groups_in_flight"})
            CHECK(predicted[key] == measured[key]);
        CHECK(measured["requests"] == 4);
        CHECK(measured["output_tokens"] == 60);
        CHECK(measured["refusal"].get<std::string>().starts_with("a prompt of 9000 tokens"));
        CHECK(measured["most_kv_tokens"] <= measured["kv_tokens"]);
        CHECK(measured["mean_sequences"] <= (devices[2] == "--objective" ? 4 : 3));
        CHECK(predicted.contains("stage_busy"));
    }
}

TEST_CASE("the text of a replay has prediction and measurement side by side", "[tools]") {
    const CommandResult result = replay("rate=100000,prompt=9,output=4,requests=5",
                                        {"--devices", "host", "--kv-tokens", "512"});
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    CHECK_THAT(result.output, Contains("5 requests, 45 prompt tokens, 20 new tokens"));
    CHECK_THAT(result.output, Contains("predicted    measured"));
    CHECK_THAT(result.output, Contains("token gap, ms, p99"));
}

TEST_CASE("a run that serves refuses what it has no use for", "[tools]") {
    const auto refused = [](const std::vector<std::string>& more, const char* why) {
        std::vector<std::string> arguments{"run", bundled_model().string()};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const CommandResult result = run_cleave(arguments);
        INFO(fmt::format("{}", fmt::join(more, " ")));
        CHECK(result.exit_code == 1);
        CHECK(result.output.empty());
        CHECK_THAT(result.error, Contains(why));
    };
    const std::string rate = "rate=9,prompt=5,output=4,requests=2";
    refused({"--overcommit", "--input-ids", "1"}, "--overcommit goes with --serve-trace");
    refused({"--pass-ms", "5", "--input-ids", "1"}, "--pass-ms goes with --serve-trace");
    refused({"--serve-trace", "none.csv"}, "--serve-trace: none.csv: cannot be read");
    for (const std::vector<std::string>& other :
         std::vector<std::vector<std::string>>{{"--input-ids", "1"},
                                               {"--ignore-eos"},
                                               {"--temperature", "1"},
                                               {"--check"},
                                               {"--max-new-tokens", "4"},
                                               {"--score", "x.txt"},
                                               {"--tokenizer", "x"}}) {
        std::vector<std::string> arguments{"--serve-trace", rate};
        arguments.insert(arguments.end(), other.begin(), other.end());
        refused(arguments, "--serve-trace sends random prompts of the trace's lengths");
    }
    refused({"--serve-trace", rate, "--batch", "4", "--pass-ms", "0.000001"},
            "give more (--pass-ms), or plan for fewer sequences (--batch)");
}
