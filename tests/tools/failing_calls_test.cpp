// SPDX-License-Identifier: Apache-2.0
// Each call to the system of a plain run made to fail in turn (faults/fail_call.cpp): a clear error
// or the whole result, nothing half-written, nothing left behind, and the next run works.
#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>

#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;
using Files = std::map<std::string, std::string>;  // by their path in the folder

Files files_in(const fs::path& folder) {
    Files files;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file())
            files[fs::relative(entry.path(), folder).string()] = read_file(entry.path());
    return files;
}

struct Run {
    CommandResult result;
    Files files;
};

// A command that writes into one folder, whose caches are its own.
class Command {
public:
    Command(Words words, std::string output) : words_(std::move(words)) {
        if (!output.empty()) {
            words_.emplace_back("-o");
            words_.push_back((out() / output).string());
        }
    }

    // What CLEAVE_FAIL and CLEAVE_FAIL_COUNT are; empty: nothing fails.
    Run run(const std::string& fails) {
        fs::remove_all(out());
        fs::create_directories(out());
        // What starts it has all its calls.
        Words all{"timeout", "60", "env", "XDG_CACHE_HOME=" + (folder_.path() / "cache").string()};
        if (!fails.empty()) {
            all.emplace_back("LD_PRELOAD=" CLEAVE_FAIL_CALL);
            all.push_back("CLEAVE_FAIL=" + fails);
            all.push_back("CLEAVE_FAIL_COUNT=" + count_file().string());
        }
        all.emplace_back(CLEAVE_BINARY);
        all.insert(all.end(), words_.begin(), words_.end());
        Run made{run_program(all), files_in(out())};
        return made;
    }
    int64_t calls(const std::string& kind) {
        const Run counted = run(kind + ":0");
        INFO(counted.result.error);
        REQUIRE(counted.result.exit_code == 0);
        return std::stoll(read_file(count_file()));
    }
    void forget_kernels() { fs::remove_all(folder_.path() / "cache"); }

private:
    fs::path out() const { return folder_.path() / "out"; }
    fs::path count_file() const { return folder_.path() / "count"; }

    TemporaryFolder folder_;
    Words words_;
};

// At most `most` of 1 to `calls`: all, or the first and last and others between them.
std::set<int64_t> some_of(int64_t calls, int64_t most) {
    std::set<int64_t> some;
    for (int64_t i = 0; i < std::min(calls, most); ++i)
        some.insert(calls <= most ? i + 1 : 1 + i * (calls - 1) / (most - 1));
    return some;
}

// Whatever fails, the exit code and the files say the same; `cold`: without kernels in the cache.
void check_failures(Words words, const std::string& output, const Words& kinds, int64_t most,
                    bool cold = false) {
    Command command(std::move(words), output);
    command.run("");
    const Run whole = command.run("");
    REQUIRE(whole.result.exit_code == 0);
    for (const std::string& kind : kinds) {
        if (cold) command.forget_kernels();
        const int64_t calls = command.calls(kind);
        for (const int64_t call : some_of(calls, most)) {
            if (cold) command.forget_kernels();
            const Run run = command.run(fmt::format("{}:{}", kind, call));
            INFO(kind << " " << call << " of " << calls << ": " << run.result.error);
            CHECK((run.result.exit_code == 0 || run.result.exit_code == 1));
            if (run.result.exit_code == 0) {
                CHECK(run.result.output == whole.result.output);
                CHECK(run.files == whole.files);
            } else {
                CHECK(run.result.error.find("cleave: ") != std::string::npos);
            }
            for (const auto& [path, bytes] : run.files) {
                INFO(path);
                REQUIRE(whole.files.contains(path));
                CHECK(bytes == whole.files.at(path));
            }
        }
    }
    const Run after = command.run("");
    CHECK(after.result.exit_code == 0);
    CHECK(after.result.output == whole.result.output);
    CHECK(after.files == whole.files);
}

void check_every_command(int64_t most) {
    const std::string model = bundled_model().string();
    const std::string folder = (source_root() / "tests/files/families/llama").string();
    const Words all{"memory", "open", "read", "write", "rename", "map", "thread", "process"};
    // LLVM ends the process where memory fails inside it.
    const Words outside_llvm(all.begin() + 1, all.end());
    const Words two{"--devices", "host[0-1]", "--tp", "2"};
    const auto with_two = [&](Words words) {
        words.insert(words.end(), two.begin(), two.end());
        return words;
    };
    check_failures(with_two({"plan", model}), "two.plan", all, most);
    check_failures(with_two({"inspect", model}), "", all, most);
    check_failures(with_two({"export", model, "--format", "ort"}), "exported", all, most);
    check_failures({"convert", folder}, "converted.onnx", all, most);
    const Words run = with_two({"run", model, "--prompt", "Once upon", "--max-new-tokens", "4"});
    check_failures(run, "", outside_llvm, most);
    check_failures(run, "", outside_llvm, most, true);
}

}  // namespace

TEST_CASE("whatever call of a command fails, it says so or succeeds, and leaves nothing half done",
          "[tools]") {
    check_every_command(4);
}

TEST_CASE("each call of a command may fail, as long as it is one of two hundred", "[tools][slow]") {
    check_every_command(200);
}
