// SPDX-License-Identifier: Apache-2.0
// `cleave export` as users type it: the examples of planner/export/README.md, and TensorRT's models
// by ONNX's own evaluator.
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/onnxruntime.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

// Words of a line of the shell, with single quotes.
std::vector<std::string> words_of(const std::string& line) {
    std::vector<std::string> words;
    std::string word;
    bool quoted = false;
    for (char c : line + " ") {
        if (c == '\'')
            quoted = !quoted;
        else if (c != ' ' || quoted)
            word += c;
        else if (!word.empty())
            words.push_back(std::exchange(word, {}));
    }
    return words;
}

std::vector<std::string> examples() {
    std::ifstream readme(source_root() / "planner/export/README.md");
    std::vector<std::string> lines;
    const std::string start = "    build/bin/cleave ";
    for (std::string line; std::getline(readme, line);)
        if (line.starts_with(start + "export ")) lines.push_back(line.substr(start.size()));
    return lines;
}

}  // namespace

TEST_CASE(
    "the exports' README has an example of every format, and each writes what its manifest says",
    "[tools]") {
    const auto schema =
        nlohmann::json::parse(std::ifstream(source_root() / "tools/schema/export.schema.json"));
    std::set<std::string> shown;
    for (const std::string& line : examples()) {
        INFO(line);
        TemporaryFolder folder;
        std::vector<std::string> words = words_of(line);
        for (std::string& word : words) {
            if (word == "models/bundled") word = (source_root() / word).string();
            if (word.starts_with("out/")) {
                shown.insert(word.substr(4));
                word = (folder.path() / word).string();
            }
        }
        words.emplace_back("--json");
        CommandResult r = run_cleave(words);
        INFO(r.error);
        REQUIRE(r.exit_code == 0);
        const auto manifest = nlohmann::json::parse(r.output);
        CHECK(schema_errors(schema, manifest) == std::vector<std::string>());
        CHECK(manifest == nlohmann::json::parse(
                              std::ifstream(fs::path(words[words.size() - 2]) / "manifest.json")));
        for (const auto& file : manifest["files"])
            CHECK(fs::file_size(fs::path(words[words.size() - 2]) / file.get<std::string>()) > 0);
    }
    const std::string refusal = run_cleave({"export", "stories-260k", "--format", "none"}).error;
    const std::string mark = "formats are ";
    std::istringstream names(refusal.substr(refusal.find(mark) + mark.size()));
    size_t count = 0;
    for (std::string name; names >> name; ++count) {
        if (name.back() == ',') name.pop_back();
        INFO(name);
        CHECK(shown.count(name) == 1);
    }
    CHECK(count == shown.size());
}

TEST_CASE("an export of one file is printed without -o, and others ask for a folder", "[tools]") {
    const std::vector<std::string> plan{"export", "stories-260k", "--devices", "sim:h100"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), plan.begin(), plan.end());
        return run_cleave(more);
    };
    CHECK_THAT(with({"--format", "dot"}).output, Catch::Matchers::StartsWith("digraph"));
    CHECK(nlohmann::json::parse(with({"--format", "json"}).output)["model"] == "stories-260k");
    CHECK_THAT(with({"--format", "accelerate"}).error, Catch::Matchers::Contains("-o"));
    CHECK_THAT(with({"--format", "json", "--json"}).error, Catch::Matchers::Contains("-o DIR"));
    CHECK_THAT(with({"--format", "json", "-o", "/dev/null/x"}).error,
               Catch::Matchers::Contains("/dev/null/x"));
    CHECK_THAT(with({"--format", "tensorrt", "-o", "/tmp"}).error,
               Catch::Matchers::Contains("--weights random"));
}

TEST_CASE("an export whose tool has no scales of keys and values refuses caches that have them",
          "[tools]") {
    const std::string model = (source_root() / "models" / "bundled" / "model.onnx").string();
    TemporaryFolder folder;
    const fs::path out = folder.path() / "out";
    for (const char* format : {"ort", "ort-collectives", "tensorrt", "iree"})
        for (const char* dtype : {"int8", "f8e4m3"}) {
            INFO(format << " " << dtype);
            const CommandResult refused =
                run_cleave({"export", model, "--devices", "sim:h100[0-1]", "--tp", "2",
                            "--kv-dtype", dtype, "--format", format, "-o", out.string()});
            CHECK(refused.exit_code == 1);
            CHECK_THAT(refused.error,
                       Catch::Matchers::Contains(dtype) && Catch::Matchers::Contains("--kv-dtype"));
            CHECK(!fs::exists(out));
        }
}

TEST_CASE(
    "TensorRT's rank models give our logits when each collective does what its attributes say",
    "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP("CLEAVE_TEST_PYTHON names no Python with onnx (tools/test sets it)");
    TemporaryFolder folder;
    const std::string ids = "1,40,7,99,3,3,120,64";
    const fs::path model = source_root() / "models" / "bundled" / "model.onnx";
    const Peer ours = run_ours(model, {"host"}, ids, "1", folder.path());
    for (const auto& [devices, tp, pp] :
         {std::tuple("sim:h100[0-3]", "2", "2"), std::tuple("sim:h100[0-1]", "1", "2"),
          std::tuple("sim:h100[0-3]", "4", "1")}) {
        INFO(devices << " tp " << tp << " pp " << pp);
        const std::string out = (folder.path() / (std::string("tp") + tp + pp)).string();
        CommandResult r = run_cleave({"export", model.string(), "--devices", devices, "--tp", tp,
                                      "--pp", pp, "--format", "tensorrt", "-o", out});
        INFO(r.error);
        REQUIRE(r.exit_code == 0);
        const std::string logits = out + "/logits.f32";
        REQUIRE(std::system((std::string("'") + python +
                             "' '" CLEAVE_SOURCE_DIR "/tests/tools/tensorrt_ranks.py' '" + out +
                             "' " + ids + " '" + logits + "'")
                                .c_str()) == 0);
        std::vector<float> found(fs::file_size(logits) / sizeof(float));
        std::ifstream(logits, std::ios::binary)
            .read(reinterpret_cast<char*>(found.data()),
                  static_cast<std::streamsize>(found.size() * sizeof(float)));
        std::vector<float> expected = ours.logits;
        expected.resize(std::min(expected.size(), found.size()));
        REQUIRE(found.size() == expected.size());
        CHECK(largest_difference(found, expected) < 1e-3);
    }
    CommandResult uneven =
        run_cleave({"export", model.string(), "--devices", "sim:h100[0-2]", "--tp", "3", "--format",
                    "tensorrt", "-o", (folder.path() / "x").string()});
    CHECK(uneven.exit_code == 1);
    CHECK_THAT(uneven.error, Catch::Matchers::Contains("all-gather takes equal"));
    CommandResult amd = run_cleave({"export", model.string(), "--devices", "sim:mi300x", "--format",
                                    "tensorrt", "-o", (folder.path() / "x").string()});
    CHECK_THAT(amd.error, Catch::Matchers::Contains("no NVIDIA GPU"));
}
