// SPDX-License-Identifier: Apache-2.0
// Commands whose outputs are closed, full or cut short, or that get fewer threads, processes or
// less address space than they ask for.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/serve/http_client.h"
#include "tests/tools/support/every_command.h"

namespace cleave::test {
namespace {

namespace fs = std::filesystem;

struct Shell {
    int exit_code = -1;  // 128 + the signal where one ended it
    std::string output, error;
};

// Two files that any user may write, for the outputs.
struct Outputs {
    Outputs() { fs::permissions(folder.path(), fs::perms::all); }
    Shell after(const std::string& script) const {
        const int status = std::system(script.c_str());
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out),
                read_file(err)};
    }
    TemporaryFolder folder;
    std::string out = folder.path() / "output", err = folder.path() / "errors";
};

// The command as a user's shell runs it, with `around` before it and `redirection` behind. Its
// standard input is one line.
Shell shell(const std::string& around, const std::string& arguments,
            const std::string& redirection) {
    const Outputs to;
    return to.after(fmt::format("exec 3>{} 4>{}; echo Hello | {{ {}'{}' {} {}; }}", to.err, to.out,
                                around, CLEAVE_BINARY, arguments, redirection));
}
constexpr const char* kBoth = ">&4 2>&3";

// A server that nobody asks, and that SIGTERM ends once it listens, where it does not end before.
// `limits` are commands of the shell, `around` is before the program.
Shell shell_of_server(const std::string& limits, const std::string& around,
                      const std::string& arguments) {
    const Outputs to;
    return to.after(fmt::format(
        "({0} exec {1}'{2}' {3}) </dev/null >{4} 2>{5} & server=$!; "
        "while kill -0 $server && ! grep -q 'listening on' {5}; do sleep 0.05; done 2>/dev/null; "
        "kill $server 2>/dev/null; wait $server",
        limits, around, CLEAVE_BINARY, arguments, to.out, to.err));
}

std::string bundled() { return "'" + bundled_model().string() + "'"; }

// A folder that other users may write to, as /tmp, with the commands that have their files there.
struct Commands {
    Commands() {
        fs::permissions(folder.path(), fs::perms::all | fs::perms::sticky_bit);
        all = every_command(folder.path());
        const auto file_or_folder = fs::recursive_directory_iterator(folder.path());
        for (const auto& entry : file_or_folder) fs::permissions(entry.path(), fs::perms::all);
        ended = all;
        std::erase_if(ended, [](const EverydayCommand& one) { return one.name == "serve"; });
    }
    // As of a user without settings, whose kernels are kept in a folder of its own.
    std::string around(const std::string& cache) const {
        return fmt::format("env HOME='{0}' XDG_CONFIG_HOME='{0}/config' XDG_CACHE_HOME='{0}/{1}' ",
                           folder.path().string(), cache);
    }

    TemporaryFolder folder;
    std::vector<EverydayCommand> all, ended;  // but for serve, which goes on
};

// Whatever it lacks, a command says so or does its work.
void check_limited(const EverydayCommand& command, const Shell& whole, const Shell& limited) {
    INFO(limited.error);
    REQUIRE(whole.exit_code == 0);
    if (limited.exit_code == 0) {
        if (!(command.traits & kVaries)) CHECK(limited.output == whole.output);
        return;
    }
    CHECK(limited.exit_code == 1);
    CHECK_THAT(limited.error, Catch::Contains("cleave: "));
}

// Root has no such limit, so that a user runs them who runs nothing else. False where it cannot.
bool check_processes(const std::vector<int>& limits) {
    const std::string as_user = "setpriv --reuid 54321 --regid 54321 --clear-groups ";
    if (std::system((as_user + "test -x '" + CLEAVE_BINARY + "' -a -r " + bundled()).c_str()) != 0)
        return false;
    const Commands commands;
    const std::string user = commands.around("cache_of_user") + as_user;
    for (const EverydayCommand& command : commands.all) {
        const std::string line = command.name + " " + command.arguments;
        const auto run = [&](const std::string& around) {
            return command.name == "serve" ? shell_of_server("", around, line)
                                           : shell(around, line, kBoth);
        };
        const Shell whole = run(user);
        for (const int most : limits) {
            INFO(line << " with " << most << " at most");
            const std::string limited = fmt::format("timeout 60 {}prlimit --nproc={} ", user, most);
            check_limited(command, whole, run(limited));
        }
    }
    return true;
}

void check_address_space(const std::vector<int>& limits) {
    const Commands commands;
    const std::string user = commands.around("cache");
    for (const EverydayCommand& command : commands.all) {
        const std::string line = command.name + " " + command.arguments;
        const auto run = [&](const std::string& limit) {
            return command.name == "serve" ? shell_of_server(limit, user + "timeout 60 ", line)
                                           : shell(limit + user + "timeout 60 ", line, kBoth);
        };
        const Shell whole = run("");
        for (const int megabytes : limits) {
            INFO(line << " in " << megabytes << " MB");
            if (command.traits & kCompiles) fs::remove_all(commands.folder.path() / "cache");
            const Shell limited = run(fmt::format("ulimit -v {}; ", megabytes * 1000));
            if (limited.error.find("error while loading shared libraries") != std::string::npos)
                continue;  // before it starts
            check_limited(command, whole, limited);
        }
    }
}

}  // namespace

TEST_CASE("the commands that lose their outputs and limits here are all of the command line",
          "[tools]") {
    std::set<std::string> names;
    for (const EverydayCommand& command : Commands().all) names.insert(command.name);
    CHECK(names == commands_of_help());
}

TEST_CASE("output that does not arrive is an error of every command", "[tools]") {
    const Commands commands;
    const std::string user = commands.around("cache") + "timeout 60 ";
    std::vector<std::string> lines{"--version", "--help", "plan --help", ""};
    for (const EverydayCommand& command : commands.ended)
        lines.push_back(command.name + " " + command.arguments);
    for (const std::string& line : lines)
        for (const char* lost : {">/dev/full", ">&-"}) {
            INFO(line << " " << lost);
            const Shell result = shell(user, line, std::string(lost) + " 2>&3");
            CHECK(result.exit_code == 1);
            CHECK_THAT(result.error, Catch::Contains("cleave: writing to standard output failed"));
        }
}

TEST_CASE("output that a limit of files' sizes cuts short is an error, and begins as the whole",
          "[tools]") {
    const std::string one = " " + bundled() + " --devices host", sim = " --devices 'sim:h100[0-1]'";
    for (const std::string& line :
         {"inspect" + one, "plan" + one + " --json", "emit" + one, "limits llama-3-8b" + sim,
          "plan llama-3-8b --json" + sim, "inspect" + one + " --json", "emit" + one + " --json",
          std::string("devices --catalogue"), std::string("man")}) {
        const Shell whole = shell("", line, kBoth);
        REQUIRE(whole.exit_code == 0);
        // In blocks of 512 bytes, or 1,024 of some shells.
        for (const size_t blocks : {size_t{1}, whole.output.size() / 2048}) {
            INFO(line << " in " << blocks << " blocks");
            REQUIRE(blocks * 1024 < whole.output.size());
            const Shell cut = shell(fmt::format("ulimit -f {}; timeout 60 ", blocks), line, kBoth);
            INFO(cut.error);
            CHECK(cut.exit_code == 1);
            CHECK(cut.error == "cleave: writing to standard output failed: File too large\n");
            CHECK(cut.output.size() >= blocks * 512);
            CHECK(whole.output.starts_with(cut.output));
        }
    }
}

TEST_CASE("a closed or full standard error changes no exit code", "[tools]") {
    const Commands commands;
    const std::string user = commands.around("cache") + "timeout 60 ";
    for (const char* lost : {"2>&-", "2>/dev/full"}) {
        for (const EverydayCommand& command : commands.ended) {
            INFO(command.name << " " << command.arguments << " " << lost);
            CHECK(shell(user, command.name + " " + command.arguments,
                        std::string(">/dev/null ") + lost)
                      .exit_code == 0);
        }
        INFO(lost);
        CHECK(shell("", "import /nonexistent", std::string(">/dev/null ") + lost).exit_code == 1);
        CHECK(shell("", "", std::string(">/dev/null ") + lost).exit_code == 1);
    }
}

TEST_CASE("a device named as the output is written, and stays a device", "[tools]") {
    const TemporaryFolder folder;
    for (const std::string line :
         {"plan llama-110m --devices host", "devices --devices sim:h100[0]"}) {
        INFO(line);
        CHECK(shell("", line + " -o /dev/null", kBoth).exit_code == 0);
        const Shell full = shell("", line + " -o /dev/full", kBoth);
        CHECK(full.exit_code == 1);
        CHECK_THAT(full.error, Catch::Contains("/dev/full") && Catch::Contains("No space left"));
        const std::string link = (folder.path() / "link").string();
        fs::remove(link);
        fs::create_symlink("/dev/full", link);
        CHECK(shell("", line + " -o " + link, kBoth).exit_code == 1);
        CHECK(fs::is_symlink(link));
        for (const char* device : {"/dev/null", "/dev/full"}) CHECK(fs::is_character_file(device));
    }
}

TEST_CASE("a server serves whatever its outputs are", "[tools][serve]") {
    for (const char* lost : {">/dev/full", ">&-", "2>/dev/full", "2>&-"}) {
        INFO(lost);
        // Nobody is told the port where standard error is lost.
        const int port = 20000 + getpid() % 12000;  // below those that clients get
        const pid_t server = fork();
        REQUIRE(server >= 0);
        if (server == 0) {
            const std::string line = fmt::format(
                "exec '{}' serve {} --devices host --threads 1 --context 256 --port {} "
                "</dev/null >/dev/null 2>/dev/null {}",
                CLEAVE_BINARY, bundled(), port, lost);
            execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
            _exit(127);
        }
        HttpResult answer;
        for (int i = 0; i < 3000 && answer.status == 0 && waitpid(server, nullptr, WNOHANG) == 0;
             ++i) {
            try {
                answer = HttpClient(static_cast<uint16_t>(port))
                             .post("/v1/completions", R"({"prompt": "Once", "max_tokens": 2})");
            } catch (const std::runtime_error&) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
        }
        CHECK(answer.status == 200);
        int status = 0;
        kill(server, SIGTERM);
        REQUIRE(waitpid(server, &status, 0) == server);
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
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

TEST_CASE("under a limit of processes every command does its work or says what it lacks",
          "[tools]") {
    if (!check_processes({1, 4})) CLEAVE_SKIP("no other user can run the program here");
}

TEST_CASE("under any limit of processes every command does its work or says what it lacks",
          "[tools][slow]") {
    if (!check_processes({1, 2, 3, 4, 5, 6, 8, 10, 12}))
        CLEAVE_SKIP("no other user can run the program here");
}

TEST_CASE("under a limit of address space every command does its work or says what it lacks",
          "[tools]") {
    check_address_space({60, 200, 320, 420});
}

TEST_CASE("under any limit of address space every command does its work or says what it lacks",
          "[tools][slow]") {
    std::vector<int> limits;
    for (int megabytes = 20; megabytes < 600; megabytes += 20) limits.push_back(megabytes);
    check_address_space(limits);
}

}  // namespace cleave::test
