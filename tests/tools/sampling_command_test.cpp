// SPDX-License-Identifier: Apache-2.0
// How `cleave run` chooses tokens, and what it tells of them.
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

CommandResult run_bundled(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"run",         (source_root() / "models/bundled").string(),
                                       "--devices",   "host",
                                       "--input-ids", "1,40,7",
                                       "--ignore-eos"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_cleave(arguments);
}

nlohmann::json json_of(std::vector<std::string> more) {
    more.insert(more.end(), {"--max-new-tokens", "6", "--json"});
    const CommandResult r = run_bundled(more);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return nlohmann::json::parse(r.output);
}

void refused(const std::vector<std::string>& more, const char* why) {
    const CommandResult r = run_bundled(more);
    CHECK(r.exit_code == 1);
    CHECK(r.output.empty());
    CHECK_THAT(r.error, Catch::Matchers::Contains(why));
}

}  // namespace

TEST_CASE("filters that leave one token give the greedy text, and a banned token never comes",
          "[tools]") {
    const auto greedy = json_of({})["token_ids"];
    CHECK(json_of({"--temperature", "1", "--top-k", "1"})["token_ids"] == greedy);
    CHECK(json_of({"--temperature", "1", "--min-p", "1", "--seed", "5"})["token_ids"] == greedy);
    const auto first = greedy[0].get<int>();
    const auto others = json_of({"--logit-bias", fmt::format("{}=-100", first)})["token_ids"];
    for (const auto& id : others) CHECK(id != first);
    const auto same = json_of({"--logit-bias", "5=100"})["token_ids"];
    for (const auto& id : same) CHECK(id == 5);
    const auto varied = json_of({"--logit-bias", "5=40", "--logit-bias", "6=39.5",
                                 "--frequency-penalty", "1"})["token_ids"];
    CHECK(varied == nlohmann::json{5, 6, 5, 6, 5, 6});
}

TEST_CASE("log-probabilities of a run are of its tokens and follow the schema", "[tools]") {
    const auto plain = json_of({});
    const auto json = json_of({"--logprobs", "2"});
    const auto schema =
        nlohmann::json::parse(std::ifstream(source_root() / "tools/schema/run.schema.json"));
    CHECK(schema_errors(schema["properties"]["logprobs"], json["logprobs"]) ==
          std::vector<std::string>());
    CHECK(json["token_ids"] == plain["token_ids"]);
    REQUIRE(json["logprobs"].size() == json["token_ids"].size());
    for (size_t i = 0; i < json["logprobs"].size(); ++i) {
        const auto& token = json["logprobs"][i];
        CHECK(token["id"] == json["token_ids"][i]);
        CHECK(token["rank"] == 0);
        REQUIRE(token["top"].size() == 2);
        CHECK(token["top"][0]["id"] == token["id"]);
        CHECK(token["top"][0]["logprob"] == token["logprob"]);
        CHECK(token["top"][1]["logprob"] <= token["logprob"]);
    }
}

TEST_CASE("flags of the sampling that cannot be meant are refused", "[tools]") {
    refused({"--top-k", "5"}, "shape sampled tokens: give a --temperature above 0");
    refused({"--top-k", "-1"}, "--top-k");
    refused({"--logprobs", "3"}, "--logprobs are a part of the JSON: give --json");
    refused({"--logprobs", "21", "--json"}, "expected a whole number from 0 to 20");
    for (const char* text : {"5", "=1", "5=", "x=1", "5=1x"})
        refused({"--logit-bias", text}, "expected a token id and a number, as in 128=-100");
    refused({"--logit-bias", "99999=1"}, "--logit-bias names token id 99999");
    refused({"--logit-bias", "5=101"}, "--logit-bias 101 of token id 5");
    refused({"--repetition-penalty", "0"}, "--repetition-penalty");
}
