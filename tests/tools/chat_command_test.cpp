// SPDX-License-Identifier: Apache-2.0
// `cleave chat`: lines of a pipe, and of a terminal where Ctrl-C is pressed.
#include <fmt/format.h>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/support/terminal.h"

using namespace cleave::test;
using Catch::Matchers::Contains;

namespace {

const std::string kQuestion = "Tell me of a dog.";

CommandResult chat(const std::string& lines, const std::string& more = "") {
    return run_program({"sh", "-c",
                        fmt::format("printf '{}' | '{}' chat '{}' --devices host --threads 1 "
                                    "--context 256 --max-new-tokens 12 {}",
                                    lines, CLEAVE_BINARY, bundled_model().string(), more)});
}

}  // namespace

TEST_CASE("a chat answers each line, knows what was said, and forgets it when told to", "[tools]") {
    const CommandResult alone =
        run_cleave({"run", bundled_model().string(), "--devices", "host", "--threads", "1",
                    "--context", "256", "--max-new-tokens", "12", "--chat", "--prompt", kQuestion});
    const CommandResult once = chat(kQuestion + "\\n");
    INFO(once.error);
    REQUIRE(once.exit_code == 0);
    CHECK(once.output == alone.output);
    const CommandResult twice = chat(kQuestion + "\\n" + kQuestion + "\\n");
    CHECK_THAT(twice.output, Catch::Matchers::StartsWith(once.output));
    CHECK(twice.output != once.output + once.output);
    const CommandResult reset = chat(kQuestion + "\\n/reset\\n" + kQuestion + "\\n/exit\\nno\\n");
    CHECK(reset.output == once.output + once.output);
}

TEST_CASE("a run takes its prompt from standard input", "[tools]") {
    const std::string more = "--devices host --context 256 --max-new-tokens 12";
    const auto run = [&](const std::string& line) {
        return run_program(
            {"sh", "-c",
             fmt::format(fmt::runtime(line), CLEAVE_BINARY, bundled_model().string(), more)});
    };
    const CommandResult given = run("'{}' run '{}' {} --prompt 'Once upon a time'");
    REQUIRE(given.exit_code == 0);
    CHECK(run("echo 'Once upon a time' | '{}' run '{}' - {}").output == given.output);
    CHECK(run("'{}' run '{}' + {}").exit_code == 1);
}

TEST_CASE("a chat that its context has no room for says how to go on", "[tools]") {
    const CommandResult full = chat(std::string(400, 'x') + "\\n/reset\\n" + kQuestion + "\\n");
    CHECK(full.exit_code == 0);
    CHECK_THAT(full.error, Contains("context of 256") && Contains("/reset"));
    CHECK(full.output == chat(kQuestion + "\\n").output);
}

TEST_CASE("Ctrl-C ends an answer, drops a line that is typed, and leaves the chat", "[tools]") {
    Terminal terminal({"chat", bundled_model().string(), "--devices", "host", "--threads", "1",
                       "--context", "512"});
    terminal.read_until("> ");
    terminal.wait_for_keys();
    terminal.type("not this\x03");
    terminal.read_until("> ");
    terminal.wait_for_keys();
    terminal.type(kQuestion + "\n");
    terminal.read_until("\r\n");  // the line's echo; the answer follows
    terminal.type("\x03");
    terminal.read_until("> ");
    terminal.type("/exit\n");
    CHECK(terminal.wait() == 0);
}

TEST_CASE("a chat of a plan file says which folders it reads weights from", "[tools]") {
    const TemporaryFolder folder;
    const std::string plan = (folder.path() / "bundled.plan").string();
    REQUIRE(run_cleave({"plan", bundled_model().string(), "--devices", "host", "--context", "256",
                        "-o", plan})
                .exit_code == 0);
    const CommandResult of_plan = run_program(
        {"sh", "-c",
         fmt::format("printf '{}\\n' | '{}' chat '{}' --tokenizer '{}' --max-new-tokens 12",
                     kQuestion, CLEAVE_BINARY, plan, bundled_model().parent_path().string())});
    INFO(of_plan.error);
    CHECK(of_plan.exit_code == 0);
    CHECK_THAT(of_plan.error,
               Contains("reads weights from " + bundled_model().parent_path().string()));
    CHECK(of_plan.output == chat(kQuestion + "\\n").output);
}
