// SPDX-License-Identifier: Apache-2.0
// `cleave export --format onnx` and `cleave check`: a plan comes back from its annotated file as it
// was, the real packages load it, and every annotation that is spoilt is found by its node's name.
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/planner/support/json_schema.h"
#include "tests/support/command.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr const char* kOnnxNoPython =
    "CLEAVE_TEST_PYTHON names no Python with onnx and onnx-ir (tools/test sets it)";

using Arguments = std::vector<std::string>;

CommandResult run_with(Arguments arguments, const Arguments& more = {}) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_cleave(arguments);
}

fs::path annotated(const Arguments& devices, const fs::path& folder) {
    const CommandResult r = run_with(
        {"export", bundled_model().string(), "--format", "onnx", "-o", folder.string()}, devices);
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return folder / "model.onnx";
}

std::string run_script(const char* python, const std::string& arguments, const fs::path& folder) {
    const fs::path script = source_root() / "tests" / "support" / "annotated_models.py";
    const fs::path output = folder / "script.txt";
    REQUIRE(std::system(fmt::format("'{}' '{}' {} >'{}'", python, script.string(), arguments,
                                    output.string())
                            .c_str()) == 0);
    std::ifstream file(output);
    std::string line;
    std::getline(file, line);
    return line;
}

}  // namespace

TEST_CASE("a plan comes back from its annotated ONNX file as it was", "[tools]") {
    TemporaryFolder folder;
    for (const Arguments& devices :
         {Arguments{"--devices", "host[0-1]", "--pp", "2"},
          Arguments{"--devices", "host[0-2]", "--tp", "3"},
          Arguments{"--devices", "sim:h100[0-3]", "--tp", "2", "--pp", "2", "--dtype", "bf16"}}) {
        INFO(devices[1]);
        const fs::path model = annotated(devices, folder.path());
        const fs::path rebuilt = folder.path() / "rebuilt.plan";
        const CommandResult r = run_cleave({"check", model.string(), "-o", rebuilt.string()});
        INFO(r.output << r.error);
        REQUIRE(r.exit_code == 0);
        const CommandResult before =
            run_with({"plan", bundled_model().string(), "--json"}, devices);
        const CommandResult after = run_cleave({"plan", rebuilt.string(), "--json"});
        REQUIRE(before.exit_code == 0);
        CHECK(after.output == before.output);
    }
}

TEST_CASE("a node that devices share, as an annotated file says, is pinned to none of them",
          "[tools]") {
    TemporaryFolder folder;
    const fs::path model = annotated({"--devices", "host[0-2]", "--tp", "3"}, folder.path());
    const CommandResult r =
        run_cleave({"plan", model.string(), "--devices", "host[0-2]", "--tp", "3"});
    INFO(r.output << r.error);
    CHECK(r.exit_code == 0);
    CHECK(r.output.find("pinned") == std::string::npos);
}

TEST_CASE("the onnx and onnx-ir packages check an annotated file, keep it, and find its devices",
          "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kOnnxNoPython);
    TemporaryFolder folder;
    const fs::path model =
        annotated({"--devices", "host[0-3]", "--tp", "2", "--pp", "2"}, folder.path());
    const Json seen =
        Json::parse(run_script(python, "'" + model.string() + "' check", folder.path()));
    CHECK(seen["devices"] == Json({"host[0]", "host[1]", "host[2]", "host[3]"}));
    CHECK(seen["annotated"] == true);
    CHECK(seen["stages"] == Json({0, 1}));
    CHECK(seen["ir_metadata"].get<int>() > 100);
    CHECK(seen["ir_devices"] == seen["devices"]);
    CHECK(seen["ir_annotated"] == true);
}

TEST_CASE("check names the node whose annotation is missing, wrong or was lost", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kOnnxNoPython);
    TemporaryFolder folder;
    const fs::path model = annotated({"--devices", "host[0-1]", "--pp", "2"}, folder.path());
    const Json schema =
        Json::parse(std::ifstream(source_root() / "tools" / "schema" / "check.schema.json"));
    const std::pair<const char*, const char*> cases[] = {{"missing", "missing"},
                                                         {"stage", "contradictory"},
                                                         {"device", "invalid"},
                                                         {"rename", "contradictory"}};
    for (const auto& [damage, kind] : cases) {
        INFO(damage);
        const fs::path spoilt = folder.path() / "spoilt.onnx";
        const std::string node = run_script(
            python, fmt::format("'{}' damage {} '{}'", model.string(), damage, spoilt.string()),
            folder.path());
        const CommandResult r = run_cleave({"check", spoilt.string(), "--json"});
        CHECK(r.exit_code == 1);
        const Json report = Json::parse(r.output);
        CHECK(schema_errors(schema, report) == std::vector<std::string>());
        bool named = false, lost = false;
        for (const Json& f : report["findings"]) {
            named |= f["node"] == node && f["kind"] == kind;
            lost |= f["kind"] == "lost" && node == f["node"].get<std::string>() + "_fused";
        }
        INFO(r.output);
        CHECK(named);
        CHECK(lost == (std::string(damage) == "rename"));
    }
}

namespace {

// A file with the standard's annotations alone, spoilt as `kind` says; the node's name.
std::string foreign_file(const char* python, const Arguments& devices, const char* kind,
                         const fs::path& folder) {
    const fs::path model = annotated(devices, folder);
    return run_script(python,
                      fmt::format("'{}' damage {} '{}'", model.string(), kind,
                                  (folder / "foreign.onnx").string()),
                      folder);
}

}  // namespace

TEST_CASE("the standard's annotations alone give the plan: stages, shards and every step",
          "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kOnnxNoPython);
    TemporaryFolder folder;
    for (const Arguments& devices :
         {Arguments{"--devices", "host[0-1]", "--pp", "2"},
          Arguments{"--devices", "host[0-2]", "--tp", "3"},
          Arguments{"--devices", "sim:h100[0-3]", "--tp", "2", "--pp", "2"}}) {
        INFO(devices[1]);
        foreign_file(python, devices, "foreign", folder.path());
        const std::string foreign = (folder.path() / "foreign.onnx").string(),
                          plan = (folder.path() / "again.plan").string();
        const CommandResult r = run_cleave({"check", foreign, "--json", "-o", plan});
        INFO(r.output << r.error);
        REQUIRE(r.exit_code == 0);
        CHECK(Json::parse(r.output)["plan"] == "completed");
        Json again = Json::parse(run_cleave({"plan", plan, "--json"}).output);
        Json original = Json::parse(
            run_with({"plan", foreign, "--ignore-affinities", "--json"}, devices).output);
        again.erase("why");  // it was not searched for
        original.erase("why");
        REQUIRE(again.size() == original.size());
        for (const auto& [part, value] : original.items()) {
            INFO(part);
            CHECK((again[part] == value));  // without its thousands of words
        }
    }
}

TEST_CASE("annotations of others decide whether products of narrow weights are summed in parts",
          "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kOnnxNoPython);
    TemporaryFolder folder;
    const std::string model = (folder.path() / "bf16").string(),
                      foreign = (folder.path() / "foreign.onnx").string(),
                      plan = (folder.path() / "again.plan").string();
    REQUIRE(run_cleave({"model", "stories-260k", "--dtype", "bf16", "-o", model}).exit_code == 0);
    for (const char* compute : {"exact", "fast"}) {
        INFO(compute);
        const fs::path out = folder.path() / compute;
        REQUIRE(run_cleave({"export", model + "/model.onnx", "--devices", "host[0-1]", "--tp", "2",
                            "--compute", compute, "--format", "onnx", "-o", out.string()})
                    .exit_code == 0);
        run_script(python,
                   fmt::format("'{}' damage foreign '{}'", (out / "model.onnx").string(), foreign),
                   folder.path());
        const CommandResult r = run_cleave({"check", foreign, "--json", "-o", plan});
        INFO(r.output << r.error);
        REQUIRE(r.exit_code == 0);
        CHECK(Json::parse(run_cleave({"plan", plan, "--json"}).output)["workload"]["compute"] ==
              compute);
    }
}

TEST_CASE("a sharding of others that no plan can follow is refused by its node's name", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kOnnxNoPython);
    TemporaryFolder folder;
    const Arguments devices{"--devices", "host[0-3]", "--tp", "2", "--pp", "2"};
    for (const auto& [kind, message] : {std::pair("axis", "which no plan can follow"),
                                        std::pair("whole", "which no plan can follow"),
                                        std::pair("tokens", "divided by features or heads"),
                                        std::pair("stray", "half of a layer")}) {
        INFO(kind);
        const std::string node = foreign_file(python, devices, kind, folder.path());
        const CommandResult r =
            run_cleave({"check", (folder.path() / "foreign.onnx").string(), "--json"});
        INFO(r.output << r.error);
        CHECK(r.exit_code == 1);
        bool named = false;
        const Json report = Json::parse(r.output);
        for (const Json& f : report["findings"]) {
            const std::string text = f["message"];
            named |= f["kind"] == "contradictory" && text.find(message) != std::string::npos &&
                     (f["node"] == node || text.find(node) != std::string::npos);
        }
        CHECK(named);
        CHECK(report["findings"].size() <= 2);
        CHECK(report["plan"] == "none");
    }
}

TEST_CASE("check leaves to the planner what annotations do not say", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kOnnxNoPython);
    TemporaryFolder folder;
    foreign_file(python, {"--devices", "host[0-1]", "--pp", "2"}, "open", folder.path());
    const fs::path plan = folder.path() / "completed.plan";
    const CommandResult r = run_cleave(
        {"check", (folder.path() / "foreign.onnx").string(), "--json", "-o", plan.string()});
    INFO(r.output << r.error);
    REQUIRE(r.exit_code == 0);
    const Json stages = Json::parse(run_cleave({"plan", plan.string(), "--json"}).output)["stages"];
    CHECK(stages.back()["devices"] == Json({"host[1]"}));
    CHECK(stages.back()["last_layer"] == 5);
}

TEST_CASE("what has no annotations, or no file to annotate, is refused", "[tools]") {
    const CommandResult bare = run_cleave({"check", bundled_model().string()});
    CHECK(bare.exit_code == 1);
    CHECK(bare.error.find("has no multi-device annotations") != std::string::npos);
    TemporaryFolder folder;
    const CommandResult shape =
        run_cleave({"export", "stories-260k", "--format", "onnx", "-o", folder.path().string()});
    CHECK(shape.exit_code == 1);
    CHECK(shape.error.find("no ONNX file to annotate") != std::string::npos);
}
