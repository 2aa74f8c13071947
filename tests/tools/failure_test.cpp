// SPDX-License-Identifier: Apache-2.0
// The message of a command that fails: once, and before anybody who would say it ends the process.
#include "tools/cli/failure.h"

#include <atomic>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

// In a process of its own: whether the words stand in `file` whenever a thread has said them.
bool all_find_the_words(const std::string& file) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const int words = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        ::dup2(words, STDERR_FILENO);
        constexpr int kThreads = 8;
        std::atomic<int> ready{0}, found{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < kThreads; ++i)
            threads.emplace_back([&] {
                ++ready;
                while (ready < kThreads) std::this_thread::yield();
                tools::say_failure("the reason");
                struct stat state{};
                ::fstat(words, &state);
                found += state.st_size > 0;
            });
        for (std::thread& t : threads) t.join();
        ::_exit(found == kThreads ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("whoever says why a command fails goes on once that is out, and it is said once",
          "[tools]") {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "words").string();
    int found = 0;
    constexpr int kProcesses = 200;
    for (int i = 0; i < kProcesses; ++i) {
        found += all_find_the_words(file);
        CHECK(read_file(file) == "cleave: the reason\n");
    }
    CHECK(found == kProcesses);
}
