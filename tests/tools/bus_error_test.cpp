// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/bus_error.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/mapped_file.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

// Exit code, or 128 + the signal, of a process that runs `body`; its standard error in `errors`.
template <class Body>
int in_child(const std::string& errors, Body&& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        const int file = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        ::dup2(file, STDERR_FILENO);
        std::signal(SIGBUS, SIG_DFL);
        tools::tell_bus_errors();
        body();
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("a mapped file that becomes shorter is an error with its name", "[tools]") {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "weights").string();
    const std::string errors = (folder.path() / "errors").string();
    std::ofstream(path) << std::string(1 << 20, 'x');
    const int code = in_child(errors, [&] {
        const MappedFile mapped(path);
        std::filesystem::resize_file(path, 4096);
        volatile auto byte = mapped.bytes()[1 << 19];
        (void)byte;
    });
    CHECK(code == 1);
    CHECK_THAT(read_file(errors), Catch::StartsWith("cleave: " + path) &&
                                      Catch::Contains("became shorter while it was read"));
}

TEST_CASE("a SIGBUS of no file ends the process as ever", "[tools]") {
    const TemporaryFolder folder;
    const std::string errors = (folder.path() / "errors").string();
    CHECK(in_child(errors, [] { ::raise(SIGBUS); }) == 128 + SIGBUS);
    CHECK(read_file(errors).empty());
}

}  // namespace cleave::test
