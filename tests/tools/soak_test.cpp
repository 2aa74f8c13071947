// SPDX-License-Identifier: Apache-2.0
// tools/soak: what it does for ten minutes, and that it sees what is wrong.
#include <filesystem>
#include <fstream>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

CommandResult soak(const std::string& hours, const std::string& program) {
    return run_program(
        {(source_root() / "tools/soak").string(), hours, "--seed", "1", "--cleave", program});
}

}  // namespace

TEST_CASE("ten minutes of random clients and commands find nothing, and nothing grows",
          "[tools][slow]") {
    const CommandResult result = soak("0.17", CLEAVE_BINARY);
    INFO(result.output << result.error);
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.output, Catch::Matchers::Contains("Found: 0"));
}

TEST_CASE("a command's wrong exit code and what it leaves are found", "[tools][slow]") {
    const TemporaryFolder folder;
    const std::string program = (folder.path() / "cleave").string();
    std::ofstream(program) << "#!/bin/sh\n[ \"$1\" = serve ] && exec '" << CLEAVE_BINARY
                           << "' \"$@\"\ntouch \"$TMPDIR/forgotten\"\nexit 2\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    const CommandResult result = soak("0.005", program);
    INFO(result.output << result.error);
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.output, Catch::Matchers::Contains("ended with 2"));
    CHECK_THAT(result.output, Catch::Matchers::Contains("left ['forgotten']"));
}

}  // namespace cleave::test
