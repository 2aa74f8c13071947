// SPDX-License-Identifier: Apache-2.0
// Each call to the system of a plain run made to fail in turn (faults/fail_call.cpp): a clear error
// or the whole result, nothing half-written, nothing left behind, and the next run works.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/serve/http_client.h"
#include "tests/tools/support/left_running.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

using Words = std::vector<std::string>;
using Files = std::map<std::string, std::string>;  // by their path in the folder
constexpr const char* kTrace = "trace.json";

// Of a folder its name with a slash, of a link where it leads, of a trace, whose times differ each
// time, only that it is whole.
Files files_in(const fs::path& folder) {
    Files files;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
        const std::string name = fs::relative(entry.path(), folder).string();
        if (entry.is_symlink())
            files[name] = "-> " + fs::read_symlink(entry.path()).string();
        else if (entry.is_directory())
            files[name + "/"] = "";
        else if (const std::string bytes = read_file(entry.path()); name != kTrace)
            files[name] = bytes;
        else
            files[name] = nlohmann::json::accept(bytes) ? "whole" : bytes;
    }
    return files;
}

struct Run {
    CommandResult result;
    Files files;
};

// A command that writes into one folder, whose caches are its own. "out:NAME" among its words is a
// file of that folder.
class Command {
public:
    explicit Command(Words words) : words_(std::move(words)) {
        for (std::string& word : words_)
            if (word.starts_with("out:")) word = (out() / word.substr(4)).string();
    }

    // What CLEAVE_FAIL and CLEAVE_FAIL_COUNT are; empty: nothing fails.
    Run run(const std::string& fails) {
        fs::remove_all(out());
        fs::create_directories(out());
        if (fs::exists(kept())) {
            forget_kernels();
            const CommandResult copied =
                run_program({"cp", "-a", kept().string(), cache().string()});  // times, too
            REQUIRE(copied.exit_code == 0);
        }
        // What starts it has all its calls.
        Words all{"timeout", "60", "env", cache_variable()};
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
    std::vector<std::string> left_running() const { return test::left_running(cache_variable()); }
    void become(Words words) { words_ = std::move(words); }
    // Each run from now on begins with the kernels that are there now.
    void keep_kernels() { fs::rename(cache(), kept()); }
    fs::path cache() const { return folder_.path() / "cache"; }
    bool left_temporaries() const {
        const fs::path cache = this->cache();
        if (!fs::exists(cache)) return false;
        for (const auto& entry : fs::recursive_directory_iterator(cache))
            if (entry.path().extension() == ".tmp") return true;
        return false;
    }
    void forget_kernels() { fs::remove_all(cache()); }

private:
    std::string cache_variable() const { return "XDG_CACHE_HOME=" + cache().string(); }
    fs::path out() const { return folder_.path() / "out"; }
    fs::path kept() const { return folder_.path() / "kept"; }
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

// Whether a run without faults follows the failure of that number: after each where few are tried,
// after each tenth of many, which would take hours.
bool is_followed(int64_t number, int64_t most) { return most <= 8 || number % 10 == 0; }

// A run whose call failed has done its work, or has left nothing and says why.
void check_run(const Command& command, const Run& whole, const Run& run, const std::string& kind) {
    // A kernel that does not compile is no fault of the input's.
    const bool may_be_ours = kind == "compile" && run.result.exit_code == 2;
    CHECK((run.result.exit_code == 0 || run.result.exit_code == 1 || may_be_ours));
    CHECK(command.left_running().empty());
    CHECK_FALSE(command.left_temporaries());
    if (run.result.exit_code == 0) {
        // METIS says itself what it lacks; the plan is then made without it, and says so.
        if (run.result.error.find("***Memory allocation failed") != std::string::npos) return;
        CHECK(run.result.output == whole.result.output);
        CHECK((run.files == whole.files));
        return;
    }
    CHECK(run.result.error.find("cleave: ") != std::string::npos);
    // What cannot be looked at or read is neither absent nor of another type.
    static const std::map<std::string, std::string> kReasons{
        {"open", "Too many open files"},  {"read", "Input/output error"},
        {"rename", "Input/output error"}, {"close", "Input/output error"},
        {"state", "Input/output error"},  {"remove", "Permission denied"}};
    if (const auto reason = kReasons.find(kind); reason != kReasons.end())
        CHECK_THAT(run.result.error, Catch::Contains(reason->second));
    // None of several files without the others.
    CHECK((run.files.empty() || run.files == whole.files));
}

void check_next_run(Command& command, const Run& whole) {
    const Run next = command.run("");
    INFO("the run after it: " << next.result.error);
    CHECK(next.result.exit_code == 0);
    CHECK(next.result.output == whole.result.output);
    CHECK((next.files == whole.files));
}

// Whatever fails, the exit code and the files say the same; `cold`: without kernels in the cache.
void check_failures(const Words& words, const Words& kinds, int64_t most, bool cold = false) {
    Command command(words);
    command.run("");
    const Run whole = command.run("");
    INFO(fmt::format("{}", fmt::join(words, " ")));
    REQUIRE(whole.result.exit_code == 0);
    for (const std::string& kind : kinds) {
        if (cold) command.forget_kernels();
        const int64_t calls = command.calls(kind);
        int64_t number = 0;
        for (const int64_t call : some_of(calls, most)) {
            if (cold) command.forget_kernels();
            const Run run = command.run(fmt::format("{}:{}", kind, call));
            INFO(kind << " " << call << " of " << calls << ": " << run.result.error);
            check_run(command, whole, run, kind);
            // Of one that compiles, at the end.
            if (!cold && is_followed(number++, most)) check_next_run(command, whole);
        }
    }
    check_next_run(command, whole);
}

// `with_llvm`: of commands that compile; `most_cold`: of one that has no kernels yet.
void check_every_command(const Words& all, const Words& with_llvm, int64_t most,
                         int64_t most_cold) {
    const std::string model = bundled_model().string();
    const std::string folder = (source_root() / "tests/files/families/llama").string();
    const Words two{"--devices", "host[0-1]", "--tp", "2"};
    const auto with_two = [&](Words words) {
        words.insert(words.end(), two.begin(), two.end());
        return words;
    };
    check_failures(with_two({"plan", model, "-o", "out:two.plan"}), all, most);
    check_failures(with_two({"inspect", model}), all, most);
    check_failures(with_two({"inspect", model, "--html", "out:page.html"}), all, most);
    check_failures(with_two({"export", model, "--format", "ort", "-o", "out:exported"}), all, most);
    check_failures({"convert", folder, "-o", "out:converted.onnx"}, all, most);
    // With files of several reads each, which are copied.
    const TemporaryFolder with_tokenizer;
    fs::copy(folder, with_tokenizer.path(), fs::copy_options::recursive);
    fs::copy_file(bundled_model().parent_path() / "tokenizer.json",
                  with_tokenizer.path() / "tokenizer.json", fs::copy_options::overwrite_existing);
    check_failures({"convert", with_tokenizer.path().string(), "--copy", "-o", "out:converted"},
                   all, std::max<int64_t>(most, 8));
    check_failures(with_two({"export", model, "--format", "onnx", "-o", "out:annotated"}), all,
                   most);
    const Words run = with_two({"run", model, "--prompt", "Once upon", "--max-new-tokens", "4"});
    Words keeps = run;
    keeps.insert(keeps.end(), {"--dtype", "int8", "--keep-packed"});
    check_failures(run, with_llvm, most);
    check_failures(keeps, with_llvm, most);
    check_failures(keeps, with_llvm, most_cold, true);
    const auto with_file = [&](const char* flag, const std::string& file) {
        Words words = run;
        words.insert(words.end(), {flag, "out:" + file});
        return words;
    };
    check_failures(with_file("--trace", kTrace), all, most);
    check_failures(with_file("--dump-logits", "logits"), all, most);
}

// Upkeep of the kernels and packed weights that a run left is done, or is an error, and damages
// none.
void check_upkeep(const Words& words, const Words& kinds, int64_t most) {
    Command command({"run", bundled_model().string(), "--prompt", "Once", "--max-new-tokens", "2",
                     "--devices", "host[0]", "--dtype", "int8", "--keep-packed"});
    REQUIRE(command.run("").result.exit_code == 0);
    const Files kernels = files_in(command.cache());
    command.keep_kernels();
    command.become(words);
    const Run whole = command.run("");
    const Files left = files_in(command.cache());
    INFO(fmt::format("{}", fmt::join(words, " ")));
    REQUIRE(whole.result.exit_code == 0);
    for (const std::string& kind : kinds) {
        const int64_t calls = command.calls(kind);
        for (const int64_t call : some_of(calls, most)) {
            const Run run = command.run(fmt::format("{}:{}", kind, call));
            INFO(kind << " " << call << " of " << calls << ": " << run.result.error);
            check_run(command, whole, run, kind);
            const Files now = files_in(command.cache());
            if (run.result.exit_code == 0) CHECK((now == left));
            for (const auto& [name, bytes] : now) {
                INFO(name);
                const Files& from = kernels.count(name) ? kernels : left;
                CHECK((from.count(name) == 1 && from.at(name) == bytes));
            }
        }
    }
}

void check_every_command(int64_t most) {
    const Words all{"memory", "open",    "read",  "write",  "rename", "map",
                    "thread", "process", "close", "folder", "state"};
    Words with_llvm = all;
    with_llvm.insert(with_llvm.end(), {"library", "compile"});
    check_every_command(all, with_llvm, most, most);
}

void check_upkeep(int64_t most) {
    const Words kinds{"memory", "site",  "open",   "read", "write",
                      "rename", "close", "folder", "state"};
    Words with_removal = kinds;
    with_removal.emplace_back("remove");
    check_upkeep({"cache", "--list"}, kinds, most);
    check_upkeep({"cache", "--clear"}, with_removal, most);
    check_upkeep({"cache", "--limit", "400kB"}, with_removal, most);
}

// A server that is asked three times, each time by another client, and ended by SIGTERM.
struct Served {
    bool listened = false;
    int exit_code = -1;
    std::string error;
    std::vector<HttpResult> answers;  // status 0: the connection ended, or none was to be had
};

class Server {
public:
    // Of `fails` as of a Command; `later`: calls count from the first client on.
    Served run(const std::string& fails, bool later) const {
        Words words{"timeout",
                    "-k",
                    "5",
                    "60",
                    "env",
                    cache_variable(),
                    "XDG_CONFIG_HOME=" + path("config")};
        if (!fails.empty()) {
            words.emplace_back("LD_PRELOAD=" CLEAVE_FAIL_CALL);
            words.push_back("CLEAVE_FAIL=" + fails);
            words.push_back("CLEAVE_FAIL_COUNT=" + path("count"));
            if (later) words.emplace_back("CLEAVE_FAIL_SERVER=1");
        }
        for (const std::string& word :
             {std::string(CLEAVE_BINARY), std::string("serve"), bundled_model().string(),
              std::string("--port"), std::string("0"), std::string("--devices"),
              std::string("host"), std::string("--threads"), std::string("1"),
              std::string("--context"), std::string("256")})
            words.push_back(word);
        std::vector<char*> pointers;
        for (std::string& word : words) pointers.push_back(word.data());
        pointers.push_back(nullptr);
        int ends[2];
        REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
        pid_t process = 0;
        REQUIRE(posix_spawnp(&process, "timeout", &actions, nullptr, pointers.data(), environ) ==
                0);
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        Served served;
        const std::string mark = "listening on http://127.0.0.1:";
        while (!served.listened && read_some(ends[0], served.error))
            served.listened =
                served.error.find(mark) != std::string::npos && served.error.back() == '\n';
        if (served.listened) {
            const auto port = static_cast<uint16_t>(
                std::stoi(served.error.substr(served.error.find(mark) + mark.size())));
            served.answers = ask(port);
            // One that ends by itself has the time to say why.
            if (goes_on(port)) kill(process, SIGTERM);
        }
        while (read_some(ends[0], served.error)) {
        }
        close(ends[0]);
        int status = 0;
        REQUIRE(waitpid(process, &status, 0) == process);
        served.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return served;
    }
    int64_t calls(const std::string& kind, bool later) const {
        const Served counted = run(kind + ":0", later);
        INFO(counted.error);
        REQUIRE(counted.exit_code == 0);
        return std::stoll(read_file(path("count")));
    }
    void forget_kernels() const { fs::remove_all(path("cache")); }
    std::vector<std::string> left_running() const { return test::left_running(cache_variable()); }

private:
    std::string cache_variable() const { return "XDG_CACHE_HOME=" + path("cache"); }
    std::string path(const char* name) const { return (folder_.path() / name).string(); }

    static bool read_some(int file, std::string& to) {
        char bytes[1024];
        const ssize_t got = read(file, bytes, sizeof bytes);
        if (got > 0) to.append(bytes, static_cast<size_t>(got));
        return got > 0;
    }

    static bool goes_on(uint16_t port) {
        try {
            return HttpClient(port).get("/health").status != 503;
        } catch (const std::runtime_error&) {
            return false;
        }
    }

    static std::vector<HttpResult> ask(uint16_t port) {
        const std::string body = R"({"prompt": "Once upon a", "max_tokens": 4, "temperature": 0)";
        std::vector<HttpResult> answers;
        for (const std::string& request :
             {post_text("/v1/completions", body + "}"),
              post_text("/v1/completions", body + R"(, "stream": true})"),
              std::string("GET /v1/models HTTP/1.1\r\nHost: test\r\n\r\n")}) {
            HttpResult& answer = answers.emplace_back();
            try {
                HttpClient client(port);
                client.write(request);
                answer = client.read();
            } catch (const std::runtime_error& error) {
                answer.body = error.what();
                if (answer.body.starts_with("no answer")) throw;
            }
        }
        return answers;
    }

    TemporaryFolder folder_;
};

// The text of an answer; nothing where it says that it failed, or ended before it was whole.
std::optional<std::string> text_of(const HttpResult& answer) {
    using Json = nlohmann::json;
    if (answer.status != 200) {
        if (answer.status != 0) CHECK(Json::parse(answer.body).contains("error"));
        return std::nullopt;
    }
    if (answer.head.find("text/event-stream") == std::string::npos) {
        const Json body = Json::parse(answer.body);
        return body.contains("choices") ? body["choices"][0]["text"].get<std::string>()
                                        : body["data"][0]["id"].get<std::string>();
    }
    const std::vector<std::string> events = events_of(answer.body);
    std::string text;
    for (const std::string& event : events) {
        if (event == "[DONE]") return text;
        const Json piece = Json::parse(event);
        if (piece.contains("error")) break;
        text += piece["choices"][0]["text"].get<std::string>();
    }
    return std::nullopt;
}

// Whatever fails, a request is answered rightly, or is told so, or its connection ends; and the
// server answers the others, or ends with its reason.
void check_served(const Served& whole, const Served& served, bool may_be_ours) {
    INFO(served.error);
    CHECK(
        (served.exit_code == 0 || served.exit_code == 1 || (may_be_ours && served.exit_code == 2)));
    if (served.exit_code != 0)
        CHECK(served.error.find("cleave: ") != std::string::npos);
    else
        CHECK(served.listened);
    int failed = 0;
    for (size_t i = 0; i < served.answers.size(); ++i) {
        INFO("answer " << i << ": " << served.answers[i].status << " " << served.answers[i].body);
        const std::optional<std::string> text = text_of(served.answers[i]);
        if (text) CHECK(text == text_of(whole.answers.at(i)));
        failed += text ? 0 : 1;
    }
    if (served.exit_code == 0) CHECK(failed <= 1);
}

void check_server(int64_t most, int64_t most_of_memory) {
    Server server;
    server.run("", false);
    const Served whole = server.run("", false);
    REQUIRE(whole.exit_code == 0);
    REQUIRE(whole.answers.size() == 3);
    for (const HttpResult& answer : whole.answers) REQUIRE(text_of(answer));
    const auto check_next = [&] {
        const Served next = server.run("", false);
        CHECK(next.exit_code == 0);
        check_served(whole, next, false);
    };
    const auto check = [&](const std::string& kind, bool later, int64_t at_most) {
        const bool is_cold = kind == "compile" || kind == "rename";
        if (is_cold) server.forget_kernels();
        const int64_t calls = server.calls(kind, later);
        int64_t number = 0;
        for (const int64_t call : some_of(calls, at_most)) {
            if (is_cold) server.forget_kernels();
            INFO(kind << " " << call << " of " << calls << (later ? " from a client on" : ""));
            check_served(whole, server.run(fmt::format("{}:{}", kind, call), later),
                         kind == "compile");
            CHECK(server.left_running().empty());
            if (!is_cold && is_followed(number++, at_most)) check_next();
        }
    };
    for (const char* kind : {"memory", "open", "read", "write", "rename", "map", "library",
                             "compile", "socket", "wait", "process", "close", "folder", "state"})
        check(kind, false, most);
    check("thread", false, 2 * most);
    check("memory", true, most_of_memory);
    for (const char* kind : {"accept", "receive", "send", "wait", "socket", "thread"})
        check(kind, true, most);
    check_next();
}

}  // namespace

TEST_CASE("whatever call of a command fails, it says so or succeeds, and leaves nothing half done",
          "[tools]") {
    check_every_command(4);
}

TEST_CASE("whatever call of the cache's upkeep fails, it is done or is an error", "[tools]") {
    check_upkeep(40);
}

TEST_CASE("each call of a command may fail, as long as it is one of two hundred", "[tools][slow]") {
    check_every_command(200);
    check_upkeep(200);
}

TEST_CASE("each place of a command that takes memory may fail", "[tools][slow]") {
    // A run that compiles its kernels takes seconds: of its places five hundred.
    check_every_command({"site"}, {"site"}, 10'000, 500);
}

TEST_CASE("whatever call of a server fails, it answers the next client or ends with its reason",
          "[tools][serve]") {
    check_server(2, 8);
}

TEST_CASE("each call of a server may fail, as long as it is one of two hundred",
          "[tools][serve][slow]") {
    check_server(200, 400);
}
