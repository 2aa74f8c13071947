// SPDX-License-Identifier: Apache-2.0
// What users of such tools expect of a command line: help, suggestions, other tools' names, prompts
// from files, seeds, widths, completion, a man page.
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave::test;
using Catch::Matchers::Contains;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string refusal(const std::vector<std::string>& arguments) {
    const CommandResult r = run_cleave(arguments);
    INFO(fmt::format("{}", fmt::join(arguments, " ")) << "\n" << r.error);
    CHECK(r.exit_code == 1);
    CHECK(r.output.empty());
    return r.error;
}

std::string planned(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan", "llama-3-8b"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = run_cleave(arguments);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return r.output;
}

std::string written(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{
        "run", bundled_model().string(), "--devices", "host", "--context", "256"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = run_cleave(arguments);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return r.output;
}

CommandResult shell(const std::string& line) { return run_program({"sh", "-c", line}); }

size_t longest_line(const std::string& text) {
    std::istringstream lines(text);
    size_t longest = 0;
    for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
    return longest;
}

std::vector<std::string> candidates(const std::string& line) {
    const TemporaryFolder folder;
    const fs::path script = folder.path() / "completion.bash";
    std::ofstream(script) << run_cleave({"completion", "bash"}).output;
    const CommandResult r = run_program(
        {"bash", "-c",
         fmt::format("source '{}'; cd '{}'; COMP_LINE='{}'; COMP_POINT=${{#COMP_LINE}}; _cleave; "
                     "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                     script.string(), folder.path().string(), line)});
    INFO(r.error);
    CHECK(r.exit_code == 0);
    std::istringstream lines(r.output);
    std::vector<std::string> words;
    for (std::string word; std::getline(lines, word);) words.push_back(word);
    return words;
}

using ArgumentWords = std::vector<std::string>;

}  // namespace

TEST_CASE("help has defaults and everyday options, and help-all those for experts", "[tools]") {
    const std::string help = run_cleave({"plan", "--help"}).output;
    const std::string all = run_cleave({"plan", "--help-all"}).output;
    for (const char* part :
         {"default: latency", "default: 1", "default: 4096", "default: 512", "default: as stored",
          "default: every GPU found, else host", "cleave plan --help-all", "Devices and plan:"})
        CHECK_THAT(std::regex_replace(help, std::regex("\\s+"), " "), Contains(part));
    for (const char* option : {"--no-metis", "--prefill-chunk", "--cost-graph", "--whole-layers"}) {
        CHECK_THAT(help, !Contains(option));
        CHECK_THAT(all, Contains(option));
    }
    CHECK_THAT(all, Contains("--tensor-parallel-size") && Contains("--tp, as vLLM has it"));
    CHECK_THAT(run_cleave({"run", "--help"}).output,
               Contains("default: 128") && Contains("--seed") && !Contains("--simt-seed"));
    CHECK(longest_line(all) <= 100);
}

TEST_CASE("cleave alone lists its commands, and help and -v are commands, too", "[tools]") {
    const CommandResult alone = run_cleave({});
    CHECK(alone.exit_code == 1);
    CHECK_THAT(alone.output, Contains("Plan and inspect:") && Contains("cleave help COMMAND"));
    CHECK(run_cleave({"help"}).output == run_cleave({"--help"}).output);
    CHECK(run_cleave({"help", "plan"}).output == run_cleave({"plan", "--help"}).output);
    CHECK(run_cleave({"-v"}).output == run_cleave({"--version"}).output);
    CHECK(run_cleave({"-v"}).exit_code == 0);
    CHECK_THAT(refusal({"help", "fly"}), Contains("no command 'fly'"));
}

TEST_CASE("what is mistyped is refused with what may be meant", "[tools]") {
    CHECK_THAT(refusal({"plna"}), Contains("did you mean plan?"));
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--dvices", "host"}),
               Contains("plan has no option --dvices (did you mean --devices?)"));
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--temperature", "1"}),
               Contains("it is of run, chat"));
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--sum-dtype", "bf16"}),
               Contains("sums have the type of the activations; --activation-dtype sets it"));
    CHECK_THAT(refusal({"run", "x", "-ngl", "99"}), Contains("what runs where is the planner's"));
    CHECK_THAT(refusal({"plan", "llama3-8b"}), Contains("did you mean llama-3-8b?"));
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--dtype", "flaot16"}),
               Contains("no such dtype (did you mean float16?)"));
    for (const auto& [given, meant] : std::initializer_list<std::pair<const char*, const char*>>{
             {"h100", "sim:h100[0]"},
             {"h100[0-3]", "sim:h100[0-3]"},
             {"4xh100", "sim:h100[0-3]"},
             {"rtx4090[0-1]", "sim:rtx4090[0-1]"},
             {"h100x8", "sim:h100[0-7]"},
             {"RTX-4090", "sim:rtx4090[0]"},
             {"4090", "sim:rtx4090[0]"},
             {"a100[0-1]", "sim:a100-80[0-1]"},
             {"cpu", "host[0]"},
             {"gpu[0-1]", "cuda[0-1]"},
             {"cuda0", "cuda[0]"},
             {"cuda:0", "cuda[0]"}}) {
        INFO(given);
        CHECK_THAT(refusal({"plan", "llama-3-8b", "--devices", given}),
                   Contains(fmt::format("(did you mean {}?)", meant)));
    }
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--devices", "sim:h1000"}),
               Contains("did you mean h100?"));
}

TEST_CASE("a wrong value is blamed on the option that has it", "[tools]") {
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--devices", "sim:rtx4090[0-3]", "--pin",
                        "layers.0-15=rtx4090[2]"}),
               Contains("--pin 'layers.0-15=rtx4090[2]': unknown kind of device 'rtx4090'") &&
                   !Contains("--devices"));
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--context", "1"}),
               Contains("--context 1: a sequence has a prompt and a new token"));
    const std::string folder = bundled_model().parent_path().string();
    CHECK_THAT(refusal({"run", folder, "--score", folder}),
               Contains("--score " + folder + ": this is a folder; name a text file"));
    CHECK_THAT(refusal({"run", folder, "--prompt-file", "/no/such/file"}),
               Contains("--prompt-file /no/such/file: cannot be read: No such file"));
    CHECK_THAT(
        refusal({"run", folder, "--prompt", "a", "--max-new-tokens", "2000", "--context", "256"}),
        Contains("give --max-new-tokens 25"));
}

TEST_CASE("options and types by other tools' names do what they do there", "[tools]") {
    const std::string expected = planned({"--devices", "sim:h100[0-3]", "--tp", "4", "--context",
                                          "2048", "--batch", "8", "--dtype", "int8"});
    for (const ArgumentWords& names :
         {ArgumentWords{"--tensor-parallel-size", "4", "--max-model-len=2048", "--max-num-seqs",
                        "8", "--dtype", "q8_0"},
          ArgumentWords{"-tp", "4", "-c", "2048", "-np", "8", "--dtype=q8_0"}}) {
        ArgumentWords arguments{"--devices", "sim:h100[0-3]"};
        arguments.insert(arguments.end(), names.begin(), names.end());
        CHECK(planned(arguments) == expected);
    }
    for (const auto& [other, own] :
         std::initializer_list<std::pair<const char*, const char*>>{{"fp16", "f16"},
                                                                    {"bfloat16", "bf16"},
                                                                    {"fp8", "f8e4m3"},
                                                                    {"q4_0", "int4"},
                                                                    {"auto", "bf16"}})
        CHECK(planned({"--devices", "sim:h100[0]", "--dtype", other, "--json"}) ==
              planned({"--devices", "sim:h100[0]", "--dtype", own, "--json"}));
    const std::string text = written({"--prompt", "Once upon a time", "--max-new-tokens", "8"});
    CHECK(written({"-p", "Once upon a time", "-n", "8"}) == text);
    const CommandResult r = run_cleave({"run", "-m", bundled_model().string(), "--devices", "host",
                                        "-c", "256", "-p", "Once upon a time", "-n", "8"});
    CHECK(r.output == text);
    // A value is a value, whatever it looks like.
    CHECK_THAT(written({"--prompt", "-n", "--max-new-tokens", "2"}), Contains("-n"));
}

TEST_CASE("prompts come from files and from standard input", "[tools]") {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "prompt.txt").string();
    std::ofstream(file) << "Once upon a time\n";
    const ArgumentWords given{"--prompt", "Once upon a time", "--max-new-tokens", "8"};
    const std::string expected = written(given);
    CHECK(written({"--prompt-file", file, "--max-new-tokens", "8"}) == expected);
    const std::string line = fmt::format("'{}' run '{}' --devices host --context 256 -n 8",
                                         CLEAVE_BINARY, bundled_model().string());
    CHECK(shell("echo 'Once upon a time' | " + line + " -f -").output == expected);
    CHECK(shell(line + " - < '" + file + "'").output == expected);
    const CommandResult twice = shell(line + " - --prompt-file - < '" + file + "'");
    CHECK(twice.exit_code == 1);
    CHECK_THAT(twice.error, Contains("standard input is one prompt"));
    // What cannot be read is no empty prompt, and what has no end is not read for ever.
    const CommandResult no_text = shell(line + " - < /tmp");
    CHECK(no_text.exit_code == 1);
    CHECK_THAT(no_text.error, Contains("standard input cannot be read: Is a directory"));
    const CommandResult endless = shell(line + " - < /dev/zero");
    CHECK(endless.exit_code == 1);
    CHECK_THAT(endless.error, Contains("standard input: a text of more than 268435456 bytes"));
    const Json batch =
        Json::parse(written({"--prompt-file", file, "--prompt-file", file, "-n", "4", "--json"}));
    CHECK(batch["sequences"].size() == 2);
}

TEST_CASE("no command writes over a file that it reads", "[tools]") {
    const TemporaryFolder folder;
    fs::copy(bundled_model().parent_path(), folder.path());
    const std::string dir = folder.path().string() + "/", model = dir + "model.onnx";
    REQUIRE(run_cleave({"plan", model, "--devices", "host", "-o", dir + "own.plan"}).exit_code ==
            0);
    fs::create_symlink("model.onnx", dir + "link.onnx");
    REQUIRE(run_cleave({"model", "stories-260k", "-o", dir + "apart", "--weights", "random"})
                .exit_code == 0);
    std::map<std::string, std::string> before;
    for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
        if (entry.is_regular_file()) before[entry.path().string()] = read_file(entry.path());
    for (std::vector<std::string> words : std::vector<std::vector<std::string>>{
             {"plan", model, "-o", model},
             {"plan", dir + "link.onnx", "-o", model},
             {"plan", dir + "link.onnx", "-o", dir + "link.onnx"},
             {"plan", dir + "apart", "-o", dir + "apart/model.onnx.data"},  // not read by a plan
             {"plan", model, "--csv", dir + "config.json"},
             {"inspect", model, "--html", model},
             {"inspect", dir + "own.plan", "--svg", dir + "own.plan"},
             {"inspect", dir + "own.plan", "--html", model},
             {"export", model, "--format", "onnx", "-o", dir},
             {"run", model, "--prompt", "a", "-n", "1", "--trace", model},
             {"run", model, "--prompt", "a", "-n", "1", "--dump-logits", dir + "tokenizer.json"}}) {
        INFO(fmt::format("{}", fmt::join(words, " ")));
        if (words[1] != dir + "own.plan") words.insert(words.end(), {"--devices", "host"});
        const CommandResult result = run_cleave(words);
        CHECK(result.exit_code == 1);
        CHECK_THAT(result.error, Contains("this command reads that file, and would replace it"));
    }
    for (const auto& [path, bytes] : before) {
        INFO(path);
        CHECK(read_file(path) == bytes);
    }
    CHECK(fs::is_symlink(dir + "link.onnx"));
}

TEST_CASE("without /proc, by which a file without a name gets one, an output is whole all the same",
          "[tools]") {
    if (run_program({"unshare", "-m", "mount", "-t", "tmpfs", "none", "/proc"}).exit_code != 0)
        CLEAVE_SKIP("no /proc of its own for a process here (unshare -m, mount)");
    const TemporaryFolder folder;
    const std::string dir = folder.path().string();
    const auto without_proc = [&](const std::string& words) {
        return shell("unshare -m sh -c \"mount -t tmpfs none /proc; cd '" + dir + "'; '" +
                     CLEAVE_BINARY + "' " + words + "\"");
    };
    const auto names = [&] {
        std::set<std::string> all;
        for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
            all.insert(entry.path().filename());
        return all;
    };
    CHECK(without_proc("plan stories-260k --devices sim:h100 -o a.plan").exit_code == 0);
    CHECK(names() == std::set<std::string>{"a.plan"});
    // A link of that name is replaced; nothing is left where the writing fails.
    std::ofstream(folder.path() / "victim") << "mine";
    std::filesystem::create_symlink("victim", folder.path() / "b.plan");
    CHECK(without_proc("plan stories-260k --devices sim:h100 -o b.plan").exit_code == 0);
    CHECK(read_file(folder.path() / "victim") == "mine");
    CHECK(read_file(folder.path() / "b.plan") == read_file(folder.path() / "a.plan"));
    const CommandResult full =
        shell("ulimit -f 1; unshare -m sh -c \"mount -t tmpfs none /proc; cd '" + dir + "'; '" +
              CLEAVE_BINARY + "' plan stories-260k --devices sim:h100 -o c.plan\"");
    CHECK(full.exit_code == 1);
    CHECK(names() == std::set<std::string>{"a.plan", "b.plan", "victim"});
}

TEST_CASE("drawn tokens have a new seed each time, and the seed that is told gives them again",
          "[tools]") {
    const ArgumentWords draw{"run",
                             bundled_model().string(),
                             "--devices",
                             "host",
                             "--prompt",
                             "A",
                             "--temperature",
                             "2",
                             "-n",
                             "24",
                             "--context",
                             "256",
                             "--ignore-eos"};
    const CommandResult first = run_cleave(draw), second = run_cleave(draw);
    REQUIRE(first.exit_code == 0);
    CHECK(first.output != second.output);
    std::smatch seed;
    REQUIRE(std::regex_search(first.error, seed, std::regex("seed ([0-9]+); --seed ([0-9]+) ")));
    CHECK(seed[1] == seed[2]);
    ArgumentWords again = draw;
    again.insert(again.end(), {"--seed", seed[1]});
    CHECK(run_cleave(again).output == first.output);
    CHECK_THAT(run_cleave(again).error, !Contains("seed"));
    again.emplace_back("--json");
    CHECK(Json::parse(run_cleave(again).output)["seed"] == std::stoll(seed[1]));
}

TEST_CASE("a plan is known by its contents, whatever its file is called", "[tools]") {
    const TemporaryFolder folder;
    const std::string plan = (folder.path() / "p").string();
    REQUIRE(run_cleave({"plan", bundled_model().string(), "--devices", "host", "--context", "256",
                        "-o", plan})
                .exit_code == 0);
    const CommandResult r = run_cleave({"run", plan, "--input-ids", "1,40,7", "-n", "4"});
    INFO(r.error);
    CHECK(r.exit_code == 0);
}

TEST_CASE("a device of one's own machine file is chosen by its name", "[tools]") {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "machine.json").string();
    REQUIRE(run_cleave({"devices", "--devices", "sim:h100[0-2]", "-o", file}).exit_code == 0);
    std::string text = read_file(file);
    for (size_t at; (at = text.find("h100")) != std::string::npos;) text.replace(at, 4, "mine1");
    std::ofstream(file) << text;
    CHECK_THAT(planned({"--machine", file, "--devices", "sim:mine1[1]"}), Contains("on 1 device"));
    CHECK_THAT(planned({"--machine", file, "--devices", "mine1"}), Contains("on 3 devices"));
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--machine", file, "--devices", "sim:mine1[7]"}),
               Contains("has no such device"));
    CHECK_THAT(refusal({"plan", "llama-3-8b", "--machine", file, "--devices", "sim:mine1[0-1]/1"}),
               Contains("says which nodes its devices are in, by their \"host\"; leave out /1"));
    CHECK_THAT(
        refusal({"plan", "llama-3-8b", "--machine", file, "--devices", "mine1,sim:mine1[0]"}),
        Contains("named twice"));
    for (size_t at; (at = text.find("sim:mine1[2]")) != std::string::npos;)
        text.replace(at, 12, "card-b");
    std::ofstream(file) << text;
    CHECK_THAT(planned({"--machine", file, "--devices", "card-b,sim:mine1[0]"}),
               Contains("on 2 devices"));
}

TEST_CASE("text is as wide as COLUMNS says, and off a terminal nothing is left out", "[tools]") {
    const ArgumentWords arguments{"plan", "llama-3-70b", "--devices", "sim:h100[0-7]",
                                  "--pp", "4",           "--tp",      "2"};
    const std::string whole = run_cleave(arguments).output;
    CHECK_THAT(whole, !Contains("columns have no room") && !Contains("\x1b["));
    CHECK_THAT(whole, Contains("capacity") && Contains("reserved") && Contains("busy"));
    for (const char* columns : {"80", "120"}) {
        ::setenv("COLUMNS", columns, 1);
        const std::string text = run_cleave(arguments).output;
        ::unsetenv("COLUMNS");
        INFO(text);
        CHECK(longest_line(text) <= std::stoul(columns));
        CHECK_THAT(text, Contains("capacity"));
    }
    ::setenv("COLUMNS", "80", 1);
    CHECK_THAT(run_cleave(arguments).output, Contains("(80 columns have no room for: heads"));
    ::unsetenv("COLUMNS");
}

TEST_CASE("bash completes commands, options, choices, devices and models", "[tools]") {
    CHECK(candidates("cleave pla") == ArgumentWords{"plan"});
    CHECK(candidates("cleave plan --obj") == ArgumentWords{"--objective"});
    CHECK(candidates("cleave plan --objective ") ==
          ArgumentWords{"latency", "throughput", "memory", "fleet"});
    CHECK(candidates("cleave plan --devices sim:h1") == ArgumentWords{"h100"});  // behind the colon
    CHECK(candidates("cleave plan llama-3.1-4") == ArgumentWords{"llama-3.1-405b"});
    CHECK(candidates("cleave completion z") == ArgumentWords{"zsh"});
    CHECK(candidates("cleave run x --max-new-tokens ").front().empty());
}

TEST_CASE("the scripts for zsh and fish have every option, and these shells read them", "[tools]") {
    const TemporaryFolder folder;
    const std::string plan = run_cleave({"plan", "--help-all"}).output;
    for (const char* name : {"zsh", "fish"}) {
        const std::string script = run_cleave({"completion", name}).output;
        const std::regex option("\n  (?:-[a-z],)?--([a-z][a-z-]*)");
        const std::string own = plan.substr(0, plan.find("\nNames of other tools"));
        for (std::sregex_iterator at(own.begin(), own.end(), option), end; at != end; ++at)
            CHECK_THAT(script, Contains((*at)[1].str()));
        const fs::path file = folder.path() / name;
        std::ofstream(file) << script;
        if (shell(fmt::format("command -v {}", name)).exit_code != 0)
            WARN(name << " is not installed: its script was not read by it");
        else
            CHECK(run_program({name, "-n", file.string()}).exit_code == 0);
    }
}

TEST_CASE("the man page has every command and option, and man reads it without a complaint",
          "[tools]") {
    const std::string page = run_cleave({"man"}).output;
    for (const char* part : {".TH CLEAVE 1", ".SS cleave plan", "\\-\\-no\\-metis",
                             "\\-\\-tensor\\-parallel\\-size", ".SH EXIT STATUS"})
        CHECK_THAT(page, Contains(part));
    if (shell("command -v groff").exit_code != 0) CLEAVE_SKIP("groff is not installed");
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "cleave.1";
    std::ofstream(file) << page;
    const CommandResult r =
        run_program({"groff", "-man", "-Tutf8", "-ww", "-rLL=100n", file.string()});
    CHECK(r.exit_code == 0);
    CHECK(r.error == "");
}
