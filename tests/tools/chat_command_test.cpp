// SPDX-License-Identifier: Apache-2.0
// `cleave chat`: lines of a pipe, and of a terminal where Ctrl-C is pressed.
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

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

// A chat in a terminal of its own.
class Terminal {
public:
    Terminal() {
        const std::string model = bundled_model().string();
        process_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
        if (process_ == 0) {
            setenv("TERM", "dumb", 1);
            execl(CLEAVE_BINARY, CLEAVE_BINARY, "chat", model.c_str(), "--devices", "host",
                  "--threads", "1", "--context", "512", static_cast<char*>(nullptr));
            _exit(127);
        }
        REQUIRE(process_ > 0);
    }
    ~Terminal() {
        if (process_ > 0) {
            kill(process_, SIGKILL);
            waitpid(process_, nullptr, 0);
        }
        close(terminal_);
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    void type(const std::string& text) {
        REQUIRE(write(terminal_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    // Until Ctrl-C is a key and no signal: the prompt is shown a moment before.
    void wait_for_keys() const {
        termios mode{};
        mode.c_lflag = ISIG;
        while ((mode.c_lflag & ISIG) != 0) {
            REQUIRE(tcgetattr(terminal_, &mode) == 0);
            usleep(1000);
        }
    }
    // What is shown until `end` is.
    std::string read_until(const std::string& end) {
        std::string shown;
        while (shown.find(end) == std::string::npos) {
            pollfd wanted{terminal_, POLLIN, 0};
            INFO(shown);
            REQUIRE(poll(&wanted, 1, 200'000) > 0);
            char bytes[512];
            const ssize_t got = read(terminal_, bytes, sizeof bytes);
            REQUIRE(got > 0);
            shown.append(bytes, static_cast<size_t>(got));
        }
        return shown;
    }
    int wait() {
        int status = 0;
        waitpid(std::exchange(process_, 0), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

private:
    pid_t process_ = 0;
    int terminal_ = -1;
};

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
    Terminal terminal;
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
