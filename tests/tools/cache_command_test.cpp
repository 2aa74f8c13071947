// SPDX-License-Identifier: Apache-2.0
// `cleave cache` on the kernels that a run leaves behind.
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

namespace {

Json cache(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"cache", "--json"});
    const CommandResult r = run_cleave(flags);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    const Json document = Json::parse(r.output);
    const Json schema = Json::parse(read_file(source_root() / "tools/schema/cache.schema.json"));
    CHECK(schema_errors(schema, document).empty());
    return document;
}

}  // namespace

TEST_CASE("the kernels of a run are listed, kept under a limit and cleared", "[tools]") {
    TemporaryFolder folder;
    const Environment place("XDG_CACHE_HOME", folder.path().string());
    CHECK(cache({})["entries"].empty());
    const std::vector<std::string> run{
        "run",  bundled_model().string(), "--devices", "host[0]", "--prompt",
        "Once", "--max-new-tokens",       "2"};
    REQUIRE(run_cleave(run).exit_code == 0);
    const Json kept = cache({});
    REQUIRE(kept["entries"].size() > 3);
    for (const Json& entry : kept["entries"]) CHECK(entry["name"] != "");
    CHECK_THAT(run_cleave({"cache", "--list"}).output,
               Contains(kept["entries"][0]["name"].get<std::string>()));

    const int64_t bytes = kept["bytes"];
    const Json half = cache({"--limit", std::to_string(bytes / 2)});
    CHECK(half["bytes"] <= bytes / 2);
    CHECK(half["freed_bytes"] == bytes - half["bytes"].get<int64_t>());
    CHECK(half["entries"].size() < kept["entries"].size());
    for (const Json& entry : half["entries"]) CHECK(entry["name"] != "");
    REQUIRE(run_cleave(run).exit_code == 0);  // compiles what went

    CHECK(cache({"--clear"})["entries"].empty());
    CHECK(cache({})["limit_bytes"] == bytes / 2);
}

TEST_CASE("a limit that is no size is refused, and nothing is removed", "[tools]") {
    TemporaryFolder folder;
    const Environment place("XDG_CACHE_HOME", folder.path().string());
    for (const char* wrong : {"-1", "2x", "", "99999999999999999999GB"}) {
        const CommandResult r = run_cleave({"cache", "--limit", wrong});
        INFO(wrong << ": " << r.error);
        CHECK(r.exit_code == 1);
        CHECK_THAT(r.error, Contains("--limit") && Contains("number"));
    }
    CHECK(cache({"--limit", "2MiB"})["limit_bytes"] == 2 * 1024 * 1024);
}
