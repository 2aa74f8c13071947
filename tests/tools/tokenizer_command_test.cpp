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
