// SPDX-License-Identifier: Apache-2.0
// Each command of `cleave --help` with arguments that make it do its everyday work, for tests of
// what holds for all of them. They change the cache of kernels, so that it must be a test's own.
#pragma once

#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {

struct EverydayCommand {
    std::string name;
    std::string arguments;  // as a shell takes them
    int traits = 0;
};
constexpr int kVaries = 1;    // it prints something else each time
constexpr int kCompiles = 2;  // where LLVM is without memory, it ends the process

// `folder`, which all may write to, has what they read, and takes what they write.
inline std::vector<EverydayCommand> every_command(const std::filesystem::path& folder) {
    const std::string plan = (folder / "two.plan").string(), model = bundled_model().string();
    REQUIRE(
        run_cleave({"plan", model, "--devices", "host[0-1]", "--tp", "2", "-o", plan}).exit_code ==
        0);
    const std::string marked = (folder / "marked").string();
    REQUIRE(run_cleave({"export", plan, "--format", "onnx", "-o", marked}).exit_code == 0);
    const std::filesystem::path family = folder / "family";
    std::filesystem::copy(source_root() / "tests/files/families/llama", family);
    const auto quoted = [](const std::string& path) { return " '" + path + "' "; };
    const std::string of_model = quoted(model), of_plan = quoted(plan);
    const auto to = [&](const char* file) { return " -o" + quoted((folder / file).string()); };
    const std::string once = " --prompt Once --max-new-tokens 4 ", two = " --devices 'host[0-1]' ";
    return {
        {"plan", of_model + two},
        {"plan", of_model + two + to("again.plan")},
        {"plan", "llama-3-8b --devices 'sim:h100[0-1]' --json"},
        {"inspect", of_model + two},
        {"why", of_plan + "embedding"},
        {"why-not", of_plan + "tp=1"},
        {"diff", of_plan + of_plan},
        {"what-if", of_plan + "--batch 2"},
        {"limits", of_plan},
        {"run", of_model + two + once, kCompiles},
        {"run", of_model + "--dtype int8 --keep-packed" + once, kCompiles},
        {"run", of_model + "--input-ids 1,2,3 --max-new-tokens 4", kCompiles},
        {"run", of_model + once + "--json", kVaries | kCompiles},
        {"serve", of_model + "--devices host --context 256 --port 0", kCompiles},
        {"chat", of_model + "--devices host --max-new-tokens 4", kCompiles},
        {"import", of_model},
        {"convert", quoted(family.string()) + to("family/converted.onnx")},
        {"model", "stories-260k" + to("model")},
        {"emit", of_plan},
        {"emit", of_plan + "--compile --no-source", kVaries | kCompiles},
        {"export", of_plan + "--format ort" + to("exported")},
        {"export", of_plan + "--format json --json" + to("exported_json")},
        {"check", quoted(marked + "/model.onnx")},
        {"devices", "", kVaries},
        {"doctor", "", kVaries},
        {"cache", "", kVaries},
        {"cache", "--list", kVaries},
        {"cache", "--limit 1GiB --json", kVaries},
        {"cache", "--clear", kVaries},
        {"help", "plan"},
        {"help", ""},
        {"completion", "bash"},
        {"man", ""},
    };
}

inline std::set<std::string> commands_of_help() {
    const std::string text = run_cleave({"--help"}).output;
    const std::regex row("\n  ([a-z][a-z-]*) +[^ ]");
    std::set<std::string> names;
    for (std::sregex_iterator at(text.begin(), text.end(), row), end; at != end; ++at)
        names.insert((*at)[1]);
    return names;
}

}  // namespace cleave::test
