// SPDX-License-Identifier: Apache-2.0
#include "tools/gpu_check/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/errors.h"

namespace cleave::gpu_check {

namespace {

using Clock = std::chrono::steady_clock;

// A process that a driver holds in the kernel ends only when the driver lets go of it.
constexpr std::chrono::seconds kPatience{30};

struct Pipe {
    Pipe() {
        if (::pipe2(ends, O_CLOEXEC) != 0)
            throw UserError("no pipe to a program: {}", std::strerror(errno));
    }
    ~Pipe() {
        close_end(0);
        close_end(1);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    void close_end(int i) {
        if (ends[i] >= 0) ::close(ends[i]);
        ends[i] = -1;
    }
    int ends[2] = {-1, -1};
};

[[noreturn]] void become(const std::vector<std::string>& command,
                         const std::vector<std::string>& environment, const Pipe& output,
                         const Pipe& errors) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // Ctrl-C reaches the parent alone
    ::dup2(output.ends[1], STDOUT_FILENO);
    ::dup2(errors.ends[1], STDERR_FILENO);
    for (const std::string& entry : environment) {
        if (entry.find('=') == std::string::npos)
            ::unsetenv(entry.c_str());
        else
            ::putenv(const_cast<char*>(entry.c_str()));
    }
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    ::_exit(127);
}

// What the pipe holds now; false at its end.
bool take(Pipe& pipe, std::string& text) {
    std::array<char, 4096> buffer;
    const ssize_t n = ::read(pipe.ends[0], buffer.data(), buffer.size());
    if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
    return n > 0 || (n < 0 && errno == EINTR);
}

}  // namespace

std::optional<int> end_of(int child, std::chrono::milliseconds patience) {
    const auto until = Clock::now() + patience;
    for (;;) {
        int status = 0;
        const pid_t ended = ::waitpid(child, &status, WNOHANG);
        if (ended == child) return status;
        if ((ended < 0 && errno != EINTR) || Clock::now() > until) return std::nullopt;
        ::poll(nullptr, 0, 5);
    }
}

Outcome run(const std::vector<std::string>& command, int limit_seconds,
            const std::vector<std::string>& environment) {
    Pipe output, errors;
    const auto start = Clock::now();
    const pid_t child = ::fork();
    if (child < 0) throw UserError("{} cannot be started: {}", command[0], std::strerror(errno));
    if (child == 0) become(command, environment, output, errors);
    output.close_end(1);
    errors.close_end(1);
    Outcome outcome;
    outcome.limit = limit_seconds;
    std::array<pollfd, 2> ready{pollfd{output.ends[0], POLLIN, 0},
                                pollfd{errors.ends[0], POLLIN, 0}};
    while (ready[0].fd >= 0 || ready[1].fd >= 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            start + std::chrono::seconds(limit_seconds) - Clock::now());
        if (left.count() <= 0) {
            outcome.timed_out = true;
            ::kill(-child, SIGKILL);
            break;
        }
        if (::poll(ready.data(), ready.size(), static_cast<int>(left.count())) <= 0) continue;
        if (ready[0].revents && !take(output, outcome.output)) ready[0].fd = -1;
        if (ready[1].revents && !take(errors, outcome.errors)) ready[1].fd = -1;
    }
    // One that closed its output has its time to end, too.
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        start + std::chrono::seconds(limit_seconds) - Clock::now());
    std::optional<int> status = end_of(child, std::max(left, std::chrono::milliseconds(0)));
    if (!status) {
        outcome.timed_out = true;
        ::kill(-child, SIGKILL);
        status = end_of(child, kPatience);
    }
    outcome.lives_on = !status;
    if (status) outcome.code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
    outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return outcome;
}

}  // namespace cleave::gpu_check
