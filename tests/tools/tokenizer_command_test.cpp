// SPDX-License-Identifier: Apache-2.0
// Text through the command: which tokenizer it takes, and the text it prints.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave::test;
using Json = nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("the space between a prompt and its continuation is kept, as text and as JSON", "[tools]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const fs::path model = shared_data() / "models" / "stories15M";
    const std::vector<std::string> line = {"run", model.string(), "--prompt", "Once upon", "--max-new-tokens", "2"};
    std::vector<std::string> json = line;
    json.push_back("--json");
    CommandResult r = run_cleave(json);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    CHECK(Json::parse(r.output).at("text") == " a time");
    CHECK_THAT(run_cleave(line).output, Catch::Matchers::Contains("Once upon") && Catch::Matchers::Contains(" a time"));
}

TEST_CASE("a SentencePiece tokenizer.model gives what the tokenizer.json of the same model gives", "[tools]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const fs::path model = shared_data() / "models" / "stories15M";
    Json results[2];
    for (int i = 0; i < 2; ++i) {
        const fs::path tokenizer = model / (i == 0 ? "tokenizer.model" : "tokenizer.json");
        CommandResult r = run_cleave({"run", model.string(), "--tokenizer", tokenizer.string(), "--prompt", "Once upon",
                                      "--max-new-tokens", "8", "--json"});
        INFO(r.error);
        REQUIRE(r.exit_code == 0);
        results[i] = Json::parse(r.output);
    }
    for (const char* key : {"prompt_ids", "token_ids", "text"}) CHECK(results[0].at(key) == results[1].at(key));
    CHECK_THAT(results[0].at("text").get<std::string>(), Catch::Matchers::StartsWith(" a time"));
}
