// SPDX-License-Identifier: Apache-2.0
// `cleave export --format iree`: the real IREE compiles what it writes and runs it on as many local
// devices, with the logits and tokens of ONNX Runtime; and the compiled module does its work where
// the plan says.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "models/onnx_writer.h"
#include "tests/support/command.h"
#include "tests/support/onnxruntime.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr const char* kIreeIds = "1,40,7,99,3,3,120,64,5,77,31,100";
constexpr const char* kIreeNewTokens = "6";
constexpr const char* kIreeNoPython =
    "CLEAVE_TEST_PYTHON names no Python with IREE (tools/test sets it)";

// Two layers; five query heads over one KV head, which no number of devices splits evenly.
fs::path small_model(const fs::path& folder) {
    models::Shape shape;
    shape.name = "small";
    shape.dtype = DType::kF32;
    shape.config.vocab_size = 131;
    shape.config.hidden_size = 40;
    shape.config.intermediate_size = 52;
    shape.config.num_layers = 2;
    shape.config.num_heads = 5;
    shape.config.num_kv_heads = 1;
    shape.config.head_dim = 8;
    shape.config.max_positions = 64;
    shape.config.rope_theta = 10000.0;
    return models::write_onnx_llama(shape, (folder / "model").string(), {});
}

CommandResult cleave(const char* command, const fs::path& model, const Devices& devices,
                     const std::vector<std::string>& rest) {
    std::vector<std::string> arguments{command, model.string(), "--devices"};
    arguments.insert(arguments.end(), devices.begin(), devices.end());
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return run_cleave(arguments);
}

fs::path export_iree(const fs::path& model, const Devices& devices, const fs::path& folder) {
    const fs::path out = folder / "exported";
    fs::remove_all(out);
    const CommandResult r =
        cleave("export", model, devices, {"--format", "iree", "-o", out.string()});
    INFO(r.error);
    REQUIRE(r.exit_code == 0);
    return out;
}

// What tests/support/iree_check.py prints for an action.
std::string iree_check(const char* python, const fs::path& exported, const std::string& action) {
    const fs::path script = source_root() / "tests" / "support" / "iree_check.py";
    const fs::path output = exported / (action + ".txt");
    REQUIRE(std::system(fmt::format("'{}' '{}' '{}' {} >'{}'", python, script.string(),
                                    exported.string(), action, output.string())
                            .c_str()) == 0);
    return read_file(output);
}

Json plan_json(const fs::path& model, const Devices& devices) {
    const CommandResult r = cleave("plan", model, devices, {"--json"});
    REQUIRE(r.exit_code == 0);
    return Json::parse(r.output);
}

// Movements between two devices in a pass: of a transfer one, of a collective as its bytes say.
int64_t planned_transfers(const Json& plan) {
    int64_t transfers = 0;
    for (const Json& step : plan["steps"]) {
        if (step["phase"] != "prefill" || step["kind"] == "compute") continue;
        if (step["kind"] == "transfer")
            ++transfers;
        else if (step["op"] == "all_gather")
            transfers += static_cast<int64_t>(step["devices"].size()) - 1;
        else
            transfers += step["link_bytes"].get<int64_t>() / step["bytes"].get<int64_t>();
    }
    return transfers;
}

void check_against_peer(const char* python, const fs::path& model, const fs::path& exported,
                        const fs::path& folder) {
    const Peer peer = run_onnxruntime(python, model, kIreeIds, kIreeNewTokens, folder);
    const Peer ours = run_folder(python, exported, kIreeIds, kIreeNewTokens, folder);
    check_same(ours, peer);
}

// The device that the plan gives a product computes it, and no other: "layers.0.q_proj" by device.
void check_products(const Json& plan, const Json& compiled) {
    CHECK(compiled["misplaced"].empty());
    const std::regex weight("model\\.(layers\\.[0-9]+)\\.\\w+\\.(\\w+_proj)\\.weight.*");
    for (size_t d = 0; d < plan["devices"].size(); ++d) {
        const std::string name = plan["devices"][d]["name"];
        std::set<std::string> planned, found;
        for (const Json& step : plan["steps"]) {
            if (step["phase"] != "prefill" || step["kind"] != "compute" ||
                step["devices"][0] != name)
                continue;
            for (const std::string op : step["operators"])
                if (op.ends_with("_proj") || op == "lm_head") planned.insert(op);
        }
        const Json products = compiled["products"].value(fmt::format("device{}", d), Json::array());
        for (const std::string key : products) {
            std::smatch at;
            const bool layer = std::regex_match(key, at, weight);
            CHECK((layer || key.starts_with("lm_head.weight")));
            found.insert(layer ? at[1].str() + "." + at[2].str() : "lm_head");
        }
        INFO(name);
        CHECK(found == planned);
        CHECK(found.size() == products.size());
    }
}

}  // namespace

TEST_CASE("IREE runs an exported module on four devices with the peer's logits, decoding too",
          "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kIreeNoPython);
    TemporaryFolder folder;
    const fs::path model = small_model(folder.path());
    const Devices devices{"host[0-3]", "--tp", "2", "--pp", "2"};
    const fs::path out = export_iree(model, devices, folder.path());
    iree_check(python, out, "run");
    CHECK(fs::file_size(out / "logits.npy") > 3 * 131 * sizeof(float));
    check_against_peer(python, model, out, folder.path());
}

TEST_CASE("IREE gathers what products that round it read", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kIreeNoPython);
    TemporaryFolder folder;
    const fs::path model = small_model(folder.path());
    const Devices devices{"host[0-1]", "--tp", "2", "--dtype", "bf16", "--kv-dtype", "f32"};
    CHECK(plan_json(model, devices)["workload"]["compute"] == "fast");
    const fs::path out = export_iree(model, devices, folder.path());
    iree_check(python, out, "run");
    check_same(run_folder(python, out, kIreeIds, kIreeNewTokens, folder.path()),
               run_ours(model, devices, kIreeIds, kIreeNewTokens, folder.path()), 1e-2);
}

TEST_CASE("IREE's module keeps the sequences of a batch apart", "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kIreeNoPython);
    TemporaryFolder folder;
    const fs::path model = small_model(folder.path());
    const fs::path out =
        export_iree(model, {"host[0-1]", "--tp", "2", "--batch", "2"}, folder.path());
    iree_check(python, out, "run");
    const std::string ids[] = {"1,40,7,99", "5,77,31,100,2,3,6"};
    const Peer both =
        run_folder(python, out, ids[0] + " --input-ids " + ids[1], kIreeNewTokens, folder.path());
    const Peer first = run_ours(model, {"host"}, ids[0], kIreeNewTokens, folder.path());
    const Peer second = run_ours(model, {"host"}, ids[1], kIreeNewTokens, folder.path());
    CHECK(both.tokens == first.tokens + "\n" + second.tokens);
    std::vector<float> alone = first.logits;
    alone.insert(alone.end(), second.logits.begin(), second.logits.end());
    REQUIRE(both.logits.size() == alone.size());
    CHECK(largest_difference(both.logits, alone) < 1e-3);
}

TEST_CASE("in IREE's compiled module products stand on the plan's devices, and transfers are its",
          "[tools]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kIreeNoPython);
    TemporaryFolder folder;
    const fs::path model = small_model(folder.path());
    const Devices devices{"host[0-3]", "--tp", "2", "--pp", "2"};
    const fs::path out = export_iree(model, devices, folder.path());
    const Json plan = plan_json(model, devices);
    const Json compiled = Json::parse(iree_check(python, out, "read"));
    CHECK(compiled["transfers"] == planned_transfers(plan));
    check_products(plan, compiled);
}

TEST_CASE("every promise in an exported module has its flag, and IREE refuses one without",
          "[tools]") {
    TemporaryFolder folder;
    const fs::path model = small_model(folder.path());
    const fs::path out = export_iree(model, {"host[0-7]", "--tp", "4", "--pp", "2"}, folder.path());
    const Json manifest = Json::parse(read_file(out / "manifest.json"));
    std::set<std::string> declared, promised;
    for (const std::string argument : manifest["commands"][0])
        if (std::smatch at; std::regex_match(
                argument, at, std::regex("--iree-hal-target-device=(\\w+)=local\\[[0-7]\\]")))
            declared.insert(at[1]);
    const std::string text = read_file(out / "model.mlir");
    const std::regex promise("#hal\\.device\\.promise<@(\\w+)>");
    for (std::sregex_iterator at(text.begin(), text.end(), promise), end; at != end; ++at)
        promised.insert((*at)[1]);
    CHECK(declared.size() == 8);
    CHECK(std::includes(declared.begin(), declared.end(), promised.begin(), promised.end()));
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kIreeNoPython);
    CHECK(iree_check(python, out, "undeclared").find("was not declared") != std::string::npos);
}

TEST_CASE("IREE compiles exported modules for NVIDIA's and AMD's GPUs", "[tools]") {
    TemporaryFolder folder;
    const fs::path model = small_model(folder.path());
    const auto refusal = [&](const char* devices) {
        return run_cleave({"export", model.string(), "--devices", devices, "--tp", "1", "--pp", "2",
                           "--format", "iree", "-o", (folder.path() / "x").string()})
            .error;
    };
    using Catch::Matchers::Contains;
    CHECK_THAT(refusal("sim:mi300x[0],sim:mi210[0]"), Contains("one AMD architecture"));
    CHECK_THAT(refusal("sim:h100[0],sim:mi300x[0]"), Contains("devices of one"));
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kIreeNoPython);
    struct Case {
        const char *devices, *driver, *target;
    };
    for (const Case& c : {Case{"sim:h100[0],sim:a100-80[0]", "cuda", "--iree-cuda-target=sm_80"},
                          Case{"sim:mi300x[0-1]", "hip", "--iree-rocm-target=gfx942"}}) {
        INFO(c.driver);
        const fs::path out =
            export_iree(model, {c.devices, "--tp", "1", "--pp", "2"}, folder.path());
        const Json manifest = Json::parse(read_file(out / "manifest.json"));
        const std::vector<std::string> flags = manifest["commands"][0];
        CHECK(std::count(flags.begin(), flags.end(), c.target) == 1);
        for (int d : {0, 1})
            CHECK(std::count(flags.begin(), flags.end(),
                             fmt::format("--iree-hal-target-device=device{}={}[{}]", d, c.driver,
                                         d)) == 1);
        iree_check(python, out, "compile");
        CHECK(fs::file_size(out / "model.vmfb") > 1000);
    }
}

TEST_CASE("no table in an exported module is shared by devices or without one", "[tools]") {
    TemporaryFolder folder;
    const fs::path model = small_model(folder.path());
    const fs::path out = export_iree(model, {"host[0-1]", "--pp", "2"}, folder.path());
    const std::string text = read_file(out / "model.mlir");
    int globals = 0, tables = 0;
    std::set<std::string> initial;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.find("util.global private") == std::string::npos) {
            // A constant tensor inside the function would be hoisted out of it, and then have no
            // device.
            CHECK(line.find("dense<") == std::string::npos);
            continue;
        }
        ++globals;
        INFO(line);
        CHECK(line.find("stream.affinity = #hal.device.promise<@device") != std::string::npos);
        tables += line.find("::\"rope0.cos\"") != std::string::npos ? 1 : 0;
        // IREE 3.13 gives mutable globals with equal initial values one buffer.
        if (line.find("mutable") != std::string::npos)
            CHECK(initial.insert(line.substr(line.find("dense<"), 18)).second);
    }
    CHECK(tables == 2);
    CHECK(initial.size() == 4);
    CHECK(globals > 20);
}

TEST_CASE("IREE runs exported modules on two and eight devices", "[tools][slow]") {
    const char* python = std::getenv("CLEAVE_TEST_PYTHON");
    if (!python) CLEAVE_SKIP(kIreeNoPython);
    TemporaryFolder folder;
    const fs::path small = small_model(folder.path());
    for (const Devices& devices :
         {Devices{"host[0-1]", "--pp", "2"}, Devices{"host[0-1]", "--tp", "2"},
          Devices{"host[0-7]", "--tp", "4", "--pp", "2"}, Devices{"host[0-7]", "--tp", "8"}}) {
        INFO(devices[0] << " " << devices[1] << devices[2]);
        const fs::path out = export_iree(small, devices, folder.path());
        iree_check(python, out, "run");
        check_against_peer(python, small, out, folder.path());
        const Json compiled = Json::parse(iree_check(python, out, "read"));
        CHECK(compiled["transfers"] == planned_transfers(plan_json(small, devices)));
    }
    const fs::path bundled = source_root() / "models" / "bundled" / "model.onnx";
    const fs::path out =
        export_iree(bundled, {"host[0-3]", "--tp", "2", "--pp", "2"}, folder.path());
    iree_check(python, out, "run");
    check_against_peer(python, bundled, out, folder.path());
}
