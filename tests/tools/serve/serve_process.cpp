// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/serve/serve_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tests/tools/serve/http_client.h"

namespace cleave::test {

using Json = nlohmann::json;

ServeProcess::ServeProcess(const std::string& devices, const std::vector<std::string>& more,
                           const std::string& model) {
    std::vector<std::string> arguments{CLEAVE_BINARY, "serve", model, "--port", "0", "--devices",
                                       devices,
                                       // Beside other tests a second thread waits for a core.
                                       "--threads", "1"};
    if (std::ranges::find(more, "--context") == more.end())
        arguments.insert(arguments.end(), {"--context", "256"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    REQUIRE(posix_spawn(&pid_, CLEAVE_BINARY, &actions, nullptr, pointers.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    error_ = ends[0];
    const std::string mark = "listening on http://127.0.0.1:";
    while (said_.find(mark) == std::string::npos || said_.back() != '\n') REQUIRE(read_error());
    port_ = static_cast<uint16_t>(std::stoi(said_.substr(said_.find(mark) + mark.size())));
}

ServeProcess::~ServeProcess() {
    if (pid_ > 0) kill(pid_, SIGKILL), wait();
    close(error_);
}

void ServeProcess::send(int signal) const { kill(pid_, signal); }

int ServeProcess::wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Json ServeProcess::get(const std::string& path) const {
    return Json::parse(HttpClient(port_).get(path).body);
}

Json ServeProcess::post(const std::string& path, const Json& body) const {
    return Json::parse(HttpClient(port_).post(path, body.dump()).body);
}

double ServeProcess::metric(const std::string& name) const {
    const std::string text = HttpClient(port_).get("/metrics").body;
    const size_t at = text.find("\ncleave:" + name + "{");
    REQUIRE(at != std::string::npos);
    return std::stod(text.substr(text.find("} ", at) + 2));
}

bool ServeProcess::read_error() {
    pollfd wanted{error_, POLLIN, 0};
    if (poll(&wanted, 1, 60'000) <= 0) return false;
    char bytes[1024];
    const ssize_t got = read(error_, bytes, sizeof bytes);
    if (got > 0) said_.append(bytes, static_cast<size_t>(got));
    return got > 0;
}

}  // namespace cleave::test
