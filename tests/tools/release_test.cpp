// SPDX-License-Identifier: Apache-2.0
// tools/release: what it makes runs on bare systems. The portable build takes a quarter of an hour,
// so that only `tools/test --all` does it.
#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {

TEST_CASE("a release installs, runs, serves and goes again on bare Debian 12 and 13",
          "[tools][slow]") {
    TemporaryFolder folder;
    const std::string out = (folder.path() / "release").string();
    const CommandResult made =
        run_program({(source_root() / "tools" / "release").string(), "-o", out});
    INFO(made.error);
    REQUIRE(made.exit_code == 0);
    const CommandResult used =
        run_program({(source_root() / "tests" / "tools" / "release_in_chroots").string(), out,
                     "bookworm", "trixie"});
    INFO(used.output << used.error);
    if (used.exit_code == 77) CLEAVE_SKIP(used.output);
    CHECK(used.exit_code == 0);
}

}  // namespace cleave::test
