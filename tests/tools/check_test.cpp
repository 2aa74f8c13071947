// SPDX-License-Identifier: Apache-2.0
// tools/check on a small tree: it passes a sound one, and names each fault that is planted.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/test.h"
#include "tools/gpu_check/process.h"

using namespace cleave;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

const std::string kLicence = "SPDX-License-Identifier: Apache-2.0\n";
const std::string kHeader = "// " + kLicence + "#pragma once\n\n";

std::string function_of(int lines, const std::string& name) {
    std::string text = "void " + name + "() {\n";
    for (int i = 0; i < lines - 2; ++i) text += "    ;\n";
    return text + "}\n";
}

// A project of three headers and two sources, with the scripts of this one.
class House {
public:
    House() {
        const fs::path from = test::source_root();
        for (const char* name :
             {".clang-format", ".clang-tidy", "tools/check", "tools/dependencies",
              "tools/lib/analyse.py", "tools/lib/build.sh", "tools/lib/check_sources.py",
              "tools/lib/common.sh", "tools/lib/cpp_text.py", "tools/lib/gpu_reports.py",
              "tools/lib/python.sh", "tools/lib/sanitize.sh"}) {
            fs::create_directories((root() / name).parent_path());
            fs::copy_file(from / name, root() / name);
        }
        write("tools/setup", "#!/bin/sh\n# " + kLicence + "exit 0\n");
        fs::permissions(root() / "tools/setup", fs::perms::owner_all);
        write("README.md",
              "<!-- Figures of GPUs: tools/check --fix writes them from "
              "tests/reports/gpu_*.json. -->\n"
              "Nothing has run on a card yet: `tests/reports/` holds no report of one, and no "
              "figure of a GPU is stated.\n"
              "<!-- End of the figures of GPUs. -->\n");
        write("CMakeLists.txt", "# " + kLicence +
                                    "cmake_minimum_required(VERSION 3.25)\n"
                                    "project(house LANGUAGES CXX)\n"
                                    "set(CMAKE_EXPORT_COMPILE_COMMANDS ON)\n"
                                    "file(GLOB_RECURSE sources CONFIGURE_DEPENDS planner/*.cpp)\n"
                                    "add_library(house STATIC ${sources})\n"
                                    "target_include_directories(house PRIVATE .)\n");
        write(".gitignore", "build/\n");
        write("planner/plan/plan.h", kHeader + "int plan_size();\n");
        write("planner/search/search.h",
              kHeader + "#include \"planner/plan/plan.h\"\n\nint search();\n");
        write("planner/verify/verify.h", kHeader + "bool verify(int size);\n");
        write("planner/plan/plan.cpp", "// " + kLicence +
                                           "#include \"planner/plan/plan.h\"\n\n"
                                           "int plan_size() { return 1; }\n\n" +
                                           function_of(80, "longest"));
        write("planner/verify/verify.cpp", "// " + kLicence +
                                               "#include \"planner/verify/verify.h\"\n\n"
                                               "#include \"planner/plan/plan.h\"\n\n"
                                               "bool verify(int size) { return size > 0; }\n");
        git({"init", "--quiet"});
        git({"add", "--all"});
        git({"commit", "--quiet", "--message", "A sound house"});
    }
    fs::path root() const { return folder_.path() / "house"; }

    void write(const fs::path& name, const std::string& text) const {
        fs::create_directories((root() / name).parent_path());
        std::ofstream(root() / name) << text;
    }
    gpu_check::Outcome check(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), root() / "tools/check");
        gpu_check::Outcome outcome = gpu_check::run(
            arguments, 300, {"XDG_CACHE_HOME=" + (folder_.path() / "cache").string()});
        outcome.output += outcome.errors;
        return outcome;
    }

private:
    void git(std::vector<std::string> arguments) const {
        arguments.insert(arguments.begin(), {"git", "-C", root(), "-c", "user.name=house", "-c",
                                             "user.email=house@x"});
        REQUIRE(gpu_check::run(arguments, 60).code == 0);
    }

    test::TemporaryFolder folder_;
};

void skip_without_programs() {
    for (const char* program : {"clang-format-19", "clang-tidy-19", "shellcheck", "git"})
        if (gpu_check::run({"sh", "-c", std::string("command -v ") + program}, 60).code != 0)
            CLEAVE_SKIP(std::string(program) + " is not installed: tools/setup --for-check");
}

struct Fault {
    const char* path;
    std::string text;
    std::vector<std::string> found;  // what is said of it
};

// One for each check, each in a file of its own.
std::vector<Fault> faults() {
    const std::string source = "// " + kLicence, script = "# " + kLicence;
    const std::string tail(101, 'x');
    return {
        {"planner/plan/format.cpp", source + "int   spaced = 1;\n", {": not formatted"}},
        {"planner/plan/order.cpp",
         source + "#include \"planner/search/search.h\"\n",
         {":2: error: planner/plan must not include \"planner/search/search.h\""}},
        {"planner/verify/search.cpp",
         source + "#include \"planner/search/search.h\"\n",
         {":2: error: planner/verify must not include \"planner/search/search.h\": it may see"}},
        {"planner/plan/absent.cpp",
         source + "#include \"planner/plan/nowhere.h\"\n",
         {":2: error: \"planner/plan/nowhere.h\" is no file of the repository"}},
        {"planner/plan/long_function.cpp",
         source + function_of(81, "too_long"),
         {":2: error: a function of 81 lines"}},
        {"codegen/templates/long_function.cuh",
         source + "template <int N>\n" + function_of(80, "too_long"),
         {":2: error: a function of 81 lines"}},
        {"planner/plan/long_file.cpp", source + std::string(600, '\n'), {":600: error: 601 lines"}},
        {"planner/plan/columns.cpp",
         source + "// " + tail.substr(3) + "\n// https://" + tail + "\n",
         {":2: error: a comment of 101 columns"}},
        {"tools/columns.sh",
         "# shellcheck shell=bash\n" + script + "# " + tail.substr(2) + "\n",
         {":3: error: a comment of 101 columns"}},
        {"tools/columns.py",
         script + "X = 1  # " + tail.substr(9) + "\n",
         {":2: error: a comment of 101 columns"}},
        {"tools/columns.cmake",
         script + "set(x 1)  # " + tail.substr(12) + "\n",
         {":2: error: a comment of 101 columns"}},
        {"planner/plan/iterator.cpp",
         source + "// A directory_iterator is named.\n"
                  "auto names(const Path& folder) { return fs::directory_iterator(folder); }\n",
         {":3: error: a directory_iterator ends the process where memory ends"}},
        {"planner/plan/licence.cpp", "int licensed = 1;\n", {":1: error: no licence line"}},
        {"planner/plan/once.h", source + "int once();\n", {":1: error: no #pragma once"}},
        {"planner/plan/alone.h",
         kHeader + "inline int length(const char* text) { return std::strlen(text); }\n",
         {":4:", "analysed 5 of 5 headers, 1 with findings"}},
        {"planner/plan/naming.cpp",
         source + "int WrongName() { return 1; }\n",
         {":2:5: error: invalid case style for function 'WrongName'"}},
        {"models/lost.cpp", source + "int lost = 1;\n", {": no compile command covers it"}},
        {"tools/script.sh", "# shellcheck shell=bash\n" + script + "cd $1\n", {" line 3:"}},
        {"tools/place.md", std::string("see /ho") + "me/someone/notes\n", {":1:see /ho"}},
    };
}

}  // namespace

TEST_CASE("tools/check passes a sound tree, and looks again at what changed alone", "[tools]") {
    skip_without_programs();
    const House house;
    gpu_check::Outcome outcome = house.check({"--all"});
    INFO(outcome.output);
    CHECK(outcome.code == 0);
    CHECK_THAT(outcome.output, Contains("analysed 3 of 3 headers"));
    CHECK_THAT(outcome.output, Contains("analysed 2 of 2 sources"));

    house.write("planner/verify/verify.h", kHeader + "bool verify(int Size);\n");
    outcome = house.check({"--since", "HEAD"});
    INFO(outcome.output);
    CHECK(outcome.code == 1);
    CHECK_THAT(outcome.output, Contains("invalid case style for parameter 'Size'"));
    CHECK_THAT(outcome.output, Contains("analysed 1 of 1 sources, 1 with findings"));
    CHECK_THAT(outcome.output, Contains("failed: clang-tidy"));
}

TEST_CASE("tools/check names each fault that is planted, and fails", "[tools]") {
    skip_without_programs();
    const House house;
    for (const Fault& fault : faults()) house.write(fault.path, fault.text);
    const gpu_check::Outcome outcome = house.check({"--all"});
    INFO(outcome.output);
    CHECK(outcome.code == 1);
    for (const Fault& fault : faults())
        for (const std::string& found : fault.found) {
            INFO(fault.path);
            const bool after_path = found.front() == ':' || found.front() == ' ';
            CHECK_THAT(outcome.output, Contains(after_path ? fault.path + found : found));
        }
    CHECK_THAT(outcome.output,
               Contains("failed: order, lengths, columns, licence, no machine, no registry, "
                        "shellcheck, clang-format, headers compile by themselves, clang-tidy"));
}

TEST_CASE("a warning is an error in the build of the tests", "[tools]") {
    std::ifstream commands(CLEAVE_BUILD_DIR "/compile_commands.json");
    std::istringstream words(nlohmann::json::parse(commands)[0]["command"].get<std::string>());
    std::vector<std::string> command;  // the compiler, and its options for warnings
    for (std::string word; words >> word;)
        if (word.ends_with("ccache"))
            continue;
        else if (command.empty() || word.starts_with("-W"))
            command.push_back(word);
    if (std::count(command.begin(), command.end(), "-Werror") == 0)
        CLEAVE_SKIP("this build has warnings (-DCLEAVE_WERROR=OFF)");
    const test::TemporaryFolder folder;
    command.insert(command.end(), {"-fsyntax-only", folder.path() / "warned.cpp"});
    const std::vector<std::pair<std::string, std::string>> warned{
        {"int f() { int unused = 1; return 0; }", "unused-variable"},
        {"int f(int x) { if (int x = 1) return x; return x; }", "shadow"},
        {"short f(int x) { return x; }", "conversion"}};
    for (const auto& [text, error] : warned) {
        std::ofstream(folder.path() / "warned.cpp") << text << "\n";
        const gpu_check::Outcome outcome = gpu_check::run(command, 60);
        INFO(outcome.errors);
        CHECK(outcome.code != 0);
        CHECK_THAT(outcome.errors, Contains("-Werror=" + error) || Contains("-Werror,-W" + error));
    }
}
