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

TEST_CASE("a model's file that becomes shorter while a command reads it is an error with its name",
          "[tools]") {
    const TemporaryFolder folder;
    const auto run = [&](const std::string& fails) {
        const std::filesystem::path model = folder.path() / "model";
        std::filesystem::remove_all(model);
        std::filesystem::copy(source_root() / "tests/files/families/llama", model);
        const std::string weights = (model / "model.safetensors").string();
        return run_program({"env", "LD_PRELOAD=" + std::string(CLEAVE_FAIL_CALL),
                            "CLEAVE_FAIL=" + fails, "CLEAVE_FAIL_FILE=" + weights,
                            "CLEAVE_FAIL_COUNT=" + (folder.path() / "count").string(),
                            CLEAVE_BINARY, "run", model.string(), "--input-ids", "1,2", "--devices",
                            "host"});
    };
    REQUIRE(run("shrink:0").exit_code == 0);
    const int maps = std::stoi(read_file(folder.path() / "count"));
    REQUIRE(maps > 0);
    for (int i = 1; i <= maps; ++i) {
        const CommandResult result = run("shrink:" + std::to_string(i));
        INFO(i << " of " << maps);
        CHECK(result.exit_code == 1);
        CHECK_THAT(result.error, Catch::Contains("model.safetensors"));
    }
}

TEST_CASE("a SIGBUS of no file ends the process as ever", "[tools]") {
    const TemporaryFolder folder;
    const std::string errors = (folder.path() / "errors").string();
    CHECK(in_child(errors, [] { ::raise(SIGBUS); }) == 128 + SIGBUS);
    CHECK(read_file(errors).empty());
}

}  // namespace cleave::test
