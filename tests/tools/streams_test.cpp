// SPDX-License-Identifier: Apache-2.0
// Commands whose outputs are closed or full, or that get fewer threads than they ask for.
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

struct Shell {
    int exit_code = -1;  // 128 + the signal where one ended it
    std::string error;
};

// The command as a user's shell runs it, with `around` before it and `redirection` behind.
Shell shell(const std::string& around, const std::string& arguments,
            const std::string& redirection) {
    const TemporaryFolder folder;
    const std::string errors = (folder.path() / "errors").string();
    const std::string text = "exec 3>" + errors + "; " + around + "'" + CLEAVE_BINARY + "' " +
                             arguments + " </dev/null " + redirection;
    const int status = std::system(text.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(errors)};
}

std::string bundled() { return "'" + bundled_model().string() + "'"; }

}  // namespace

TEST_CASE("output that does not arrive is an error of every command", "[tools]") {
    const std::string model = bundled();
    for (const std::string& command : std::vector<std::string>{
             "run " + model + " --prompt Once --max-new-tokens 4",
             "run " + model + " --input-ids 1,2,3 --max-new-tokens 4",
             "run " + model + " --prompt Once --max-new-tokens 4 --json",
             "plan " + model + " --devices host[0-1]",
             "plan llama-3-8b --devices sim:h100[0-1] --json", "import " + model,
             "inspect " + model + " --devices host", "emit " + model, "devices", "doctor"})
        for (const char* lost : {">/dev/full", ">&-"}) {
            INFO(command << " " << lost);
            const Shell result = shell("", command, std::string(lost) + " 2>&3");
            CHECK(result.exit_code == 1);
            CHECK_THAT(result.error, Catch::Contains("cleave: "));
        }
}

TEST_CASE("a closed or full standard error changes no exit code", "[tools]") {
    for (const char* lost : {"2>&-", "2>/dev/full"}) {
        INFO(lost);
        CHECK(shell("", "import /nonexistent", std::string(">/dev/null ") + lost).exit_code == 1);
        CHECK(shell("", "run " + bundled() + " --prompt Once --max-new-tokens 4",
                    std::string(">/dev/null ") + lost)
                  .exit_code == 0);
    }
}

TEST_CASE("threads that the system does not give are an error, and no abort", "[tools]") {
    // A thread's stack takes address space.
    const Shell result = shell(
        "ulimit -v 2000000; ulimit -s 65536; ",
        "run " + bundled() + " --prompt Once --max-new-tokens 4 --threads 128", ">/dev/null 2>&3");
    INFO(result.error);
    CHECK(result.exit_code == 1);
    CHECK_THAT(result.error, Catch::Contains("a thread cannot be started") &&
                                 Catch::Contains("use fewer (--threads)"));
}

}  // namespace cleave::test
