// SPDX-License-Identifier: Apache-2.0
// cleave in a terminal of its own, which a test types into and reads.
#pragma once

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {

class Terminal {
public:
    explicit Terminal(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), CLEAVE_BINARY);
        std::vector<char*> words;
        for (std::string& argument : arguments) words.push_back(argument.data());
        words.push_back(nullptr);
        process_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
        if (process_ == 0) {
            setenv("TERM", "dumb", 1);
            execv(CLEAVE_BINARY, words.data());
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

}  // namespace cleave::test
