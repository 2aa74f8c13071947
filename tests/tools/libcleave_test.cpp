// SPDX-License-Identifier: Apache-2.0
// libcleave as others meet it: installed into a folder, found from a project outside of this one,
// built, linked, run.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <fmt/ranges.h>
#include <sys/wait.h>
#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

struct Ran {
    int exit_code = -1;
    std::string output;  // both streams
};

Ran shell(const std::string& command) {
    std::FILE* pipe = ::popen(("( " + command + " ) 2>&1").c_str(), "r");
    REQUIRE(pipe);
    Ran ran;
    std::array<char, 4096> buffer{};
    while (size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
        ran.output.append(buffer.data(), n);
    const int status = ::pclose(pipe);
    ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return ran;
}

std::string succeeds(const std::string& command) {
    Ran ran = shell(command);
    INFO(command << "\n" << ran.output);
    REQUIRE(ran.exit_code == 0);
    return ran.output;
}

std::vector<std::string> lines_with(const std::string& text, const std::string& piece) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
        if (line.find(piece) != std::string::npos) lines.push_back(line);
    return lines;
}

std::string install(const fs::path& prefix) {
    succeeds("cmake --install '" CLEAVE_BUILD_DIR "' --prefix '" + prefix.string() + "'");
    return prefix.string();
}

void check_surface(const std::string& library, const char* soname) {
    const std::string needed = succeeds("readelf -d '" + library + "'");
    CHECK(lines_with(needed, "(SONAME)").size() == 1);
    CHECK_THAT(needed, Catch::Matchers::Contains(soname));
    for (const std::string& symbol :
         lines_with(succeeds("nm -D --defined-only '" + library + "'"), " ")) {
        INFO(symbol);
        CHECK((symbol.find(" T cleave_") != std::string::npos ||
               symbol.find(" A CLEAVE_") != std::string::npos));
    }
}

}  // namespace

TEST_CASE("an installed libcleave plans from a CMake project and from C by pkg-config", "[tools]") {
    TemporaryFolder folder;
    const std::string prefix = install(folder.path() / "prefix");
    const std::string build = (folder.path() / "build").string();
    succeeds("cmake -S '" CLEAVE_SOURCE_DIR "/tests/consumer' -B '" + build +
             "' -G Ninja -DCMAKE_PREFIX_PATH='" + prefix + "' && cmake --build '" + build + "'");
    CHECK(succeeds("'" + build + "/abi'").empty());

    // Two stages of two devices: each holds half of two of four layers; a sum for each layer, a
    // transfer each to the next.
    const std::string own = succeeds("'" + build + "/own_operators'");
    INFO(own);
    const int64_t layer = int64_t{2} * 2 * 4096 * 16384;
    CHECK(lines_with(own, "sim:h100[").size() == 4);
    CHECK(lines_with(own, fmt::format(" {}", layer)).size() == 4);
    CHECK(lines_with(own, "all_reduce").size() == 4);
    CHECK(lines_with(own, "transfer").size() == 2);

    const std::string pkg_config =
        "PKG_CONFIG_PATH='" + prefix + "/lib/pkgconfig' pkg-config --cflags --libs cleave";
    succeeds("cd '" + build +
             "' && cc -std=c99 -Wall -Werror -pedantic '" CLEAVE_SOURCE_DIR
             "/tests/consumer/plan_llama.c' $(" +
             pkg_config + ") -Wl,-rpath,'" + prefix + "/lib' -o by_pkg_config && ./by_pkg_config");
    // The engine of the library runs three requests at once, each as the command runs it alone.
    const std::string one = succeeds("'" + prefix +
                                     "/bin/cleave' run '" CLEAVE_SOURCE_DIR
                                     "/models/bundled' --input-ids 1,40,7 --max-new-tokens 6 "
                                     "--ignore-eos --devices host --json 2>/dev/null");
    const auto ids = nlohmann::json::parse(one)["token_ids"].get<std::vector<int>>();
    const std::string line = fmt::format("{}\n", fmt::join(ids, ","));
    CHECK(succeeds("'" + build + "/run_bundled' '" CLEAVE_SOURCE_DIR "/models/bundled'") ==
          line + line + line);

    const auto json = nlohmann::json::parse(std::ifstream(fs::path(build) / "plan/plan.json"));
    const auto schema = nlohmann::json::parse(
        std::ifstream(fs::path(prefix) / "share/cleave/schema/plan.schema.json"));
    CHECK(schema_errors(schema, json) == std::vector<std::string>());
    CHECK(json["model"] == "llama-3-8b");
}

TEST_CASE("libcleave needs no compiler and no driver, and shows its C ABI alone", "[tools]") {
    const std::string library = CLEAVE_BUILD_DIR "/lib/libcleave.so";
    check_surface(library, "libcleave.so.1");
    const std::string all = succeeds("ldd '" + library + "'");
    for (const char* other : {"LLVM", "clang", "cuda", "nvrtc", "nccl", "hip", "rccl", "hwloc"}) {
        INFO(all);
        CHECK(all.find(other) == std::string::npos);
    }
}

TEST_CASE("libcleave_engine is libcleave with an engine, and opens compilers and drivers late",
          "[tools]") {
    const std::string library = CLEAVE_BUILD_DIR "/lib/libcleave_engine.so";
    check_surface(library, "libcleave_engine.so.1");
    const std::string all = succeeds("ldd '" + library + "'");
    for (const char* other : {"LLVM", "clang", "cuda", "nvrtc", "nccl", "hip", "rccl"}) {
        INFO(all);
        CHECK(all.find(other) == std::string::npos);
    }
    const auto symbols = [](const std::string& of) {
        std::set<std::string> names;
        std::istringstream in(succeeds("nm -D --defined-only -j '" + of + "'"));
        for (std::string line; std::getline(in, line);) names.insert(line);
        return names;
    };
    const std::set<std::string> of_engine = symbols(library);
    for (const std::string& name : symbols(CLEAVE_BUILD_DIR "/lib/libcleave.so"))
        CHECK(of_engine.count(name) == 1);
    CHECK(of_engine.count("cleave_engine_add@@CLEAVE_1") + of_engine.count("cleave_engine_add") ==
          1);
}

TEST_CASE("the installed command runs a model with what was installed beside it", "[tools]") {
    TemporaryFolder folder;
    const std::string prefix = install(folder.path() / "prefix");
    const std::string out = succeeds("cd / && '" + prefix +
                                     "/bin/cleave' run '" CLEAVE_SOURCE_DIR
                                     "/models/bundled' --input-ids 1,40,7 --max-new-tokens 3 "
                                     "--devices host --json");
    CHECK(nlohmann::json::parse(out.substr(out.find('{')))["token_ids"].size() == 3);
}

TEST_CASE("the Python wheel has the library's whole surface, and plans follow their schema",
          "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python ||
        shell(std::string(python) + " -c 'import scikit_build_core, jsonschema'").exit_code != 0)
        CLEAVE_SKIP(
            "CLEAVE_TEST_PYTHON names no Python with scikit-build-core and jsonschema (tools/test "
            "sets it)");
    TemporaryFolder folder;
    const std::string at = folder.path().string();
    // A copy: the build leaves nothing in the sources.
    fs::copy(source_root() / "tools/python", folder.path() / "source", fs::copy_options::recursive);
    const std::string wheel = "'" + std::string(python) +
                              "' -m pip --disable-pip-version-check wheel --no-build-isolation "
                              "--no-deps --no-index -w '" +
                              at + "/wheels' '" + at + "/source'";
    if (!fs::exists("/usr/lib/cleave")) {
        const Ran alone = shell("env -u CLEAVE_LIBRARY " + wheel);
        CHECK(alone.exit_code != 0);
        CHECK_THAT(alone.output, Catch::Matchers::Contains("no checkout of Cleave lies around"));
    }
    succeeds("env CLEAVE_LIBRARY='" CLEAVE_BUILD_DIR "/lib/libcleave.so' " + wheel);
    succeeds("'" + std::string(python) +
             "' -m pip --disable-pip-version-check install --no-deps --no-index --target '" + at +
             "/site' '" + at + "'/wheels/cleave-*.whl");
    CHECK(succeeds(
              "cd '" + at + "' && env -u CLEAVE_LIBRARY PYTHONPATH='" + at + "/site' '" + python +
              "' '" CLEAVE_SOURCE_DIR "/tests/tools/python_package.py' '" CLEAVE_SOURCE_DIR "'")
              .empty());
}

TEST_CASE("the Python package runs many requests at once, each as it is alone", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP("CLEAVE_TEST_PYTHON names no Python (tools/test sets it)");
    const std::string out = succeeds(
        "'" CLEAVE_BUILD_DIR "/bin/cleave' run '" CLEAVE_SOURCE_DIR
        "/models/bundled' --input-ids 1,40,7 --max-new-tokens 12 --ignore-eos --devices host "
        "--json 2>/dev/null");
    const auto ids = nlohmann::json::parse(out)["token_ids"].get<std::vector<int>>();
    test::TemporaryFolder folder;
    const std::string plan = (folder.path() / "replicas.plan").string();
    succeeds("'" CLEAVE_BUILD_DIR "/bin/cleave' plan '" CLEAVE_SOURCE_DIR
             "/models/bundled' --devices 'host[0-1]' --objective throughput --replicas 2 --batch 4 "
             "--context 256 -o '" +
             plan + "' 2>/dev/null");
    CHECK(succeeds("cd / && env PYTHONDONTWRITEBYTECODE=1 CLEAVE_LIBRARY='" CLEAVE_BUILD_DIR
                   "/lib/libcleave_engine.so' PYTHONPATH='" CLEAVE_SOURCE_DIR "/tools/python' '" +
                   std::string(python) +
                   "' '" CLEAVE_SOURCE_DIR "/tests/tools/python_engine.py' '" CLEAVE_SOURCE_DIR
                   "' " +
                   fmt::format("{} '{}'", fmt::join(ids, ","), plan))
              .empty());
}
