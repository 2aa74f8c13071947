// SPDX-License-Identifier: Apache-2.0
// Files that exporters of many versions wrote, kept in tests/files/exporters: each is recovered as
// the model that its configuration describes and gives the logits of transformers (quantised ones:
// of ONNX Runtime), of the prompt and of every step after it, on one device and on several.
// expectations.json says what to expect of each.
#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <nlohmann/json.hpp>

#include "codegen/generate.h"
#include "importer/onnx/import.h"
#include "tests/e2e/support.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
using importer::OpKind;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

fs::path exporter_files() { return source_root() / "tests" / "files" / "exporters"; }

Json exporter_expectations() {
    std::ifstream file(exporter_files() / "expectations.json");
    REQUIRE(file);
    return Json::parse(file);
}

// The file as its exporter left it; the folder keeps it compressed.
fs::path unpack(const std::string& name, const fs::path& folder) {
    const fs::path packed = exporter_files() / (name + ".onnx.gz"),
                   path = folder / (name + ".onnx");
    std::ifstream input(packed, std::ios::binary);
    REQUIRE(input);
    google::protobuf::io::IstreamInputStream stream(&input);
    google::protobuf::io::GzipInputStream bytes(&stream);
    std::ofstream output(path, std::ios::binary);
    const void* data = nullptr;
    for (int size = 0; bytes.Next(&data, &size);)
        output.write(static_cast<const char*>(data), size);
    REQUIRE(bytes.ZlibErrorMessage() == nullptr);
    return path;
}

// What the operators of each layer say, in the words of expectations.json.
Json described(const importer::Graph& graph) {
    const importer::ModelConfig& c = graph.config;
    Json json = {{"num_layers", c.num_layers}, {"hidden_size", c.hidden_size},
                 {"vocab_size", c.vocab_size}, {"intermediate_size", c.intermediate_size},
                 {"num_heads", c.num_heads},   {"num_kv_heads", c.num_kv_heads},
                 {"head_dim", c.head_dim},     {"windows", Json::array()},
                 {"rotated", Json::array()}};
    const auto layers = static_cast<size_t>(c.num_layers);
    std::vector<int64_t> windows(layers, -1);
    std::vector<bool> rotated(layers, false);
    for (const importer::Op& op : graph.ops) {
        if (op.kind == OpKind::kAttention)
            windows.at(static_cast<size_t>(op.layer)) = op.as<importer::AttentionAttrs>().window;
        if (op.kind == OpKind::kRope) rotated.at(static_cast<size_t>(op.layer)) = true;
    }
    json["windows"] = windows;
    json["rotated"] = rotated;
    return json;
}

std::vector<float> expected_logits(const Json& expected) {
    return read_floats(exporter_files() / "references" /
                       (expected["reference"].get<std::string>() + ".f32"));
}

// By the interpreter of Graphs, which shares nothing with the planner and the kernels. It takes all
// tokens at once, and activations quantised dynamically depend on how many those are.
void check_interpreted(const importer::Graph& graph, const Json& expected) {
    for (const importer::Weight& weight : graph.weights)
        if (weight.quantization.dynamic_activations) return;
    std::vector<int32_t> tokens = expected["prompt"];
    for (const Json& token : expected["new_tokens"]) tokens.push_back(token);
    tokens.pop_back();
    const std::vector<double> logits = test::reference_logits(graph, tokens);
    CHECK(largest_difference({logits.begin(), logits.end()}, expected_logits(expected)) <
          expected["tolerance"].get<double>());
}

// By plan, kernels and session: the prompt at once, then token by token.
void check_run(const importer::Graph& graph, const Json& expected, const DeviceShape& shape) {
    INFO(shape.name);
    const std::vector<int32_t> tokens = expected["new_tokens"];
    const auto sequence = continue_prompt(graph, shape, expected["prompt"], tokens.size());
    CHECK(sequence.token_ids == tokens);
    CHECK(largest_difference(sequence.logits, expected_logits(expected)) <
          expected["tolerance"].get<double>());
}

// One device and two; three where heads are too few for them.
void check_runs(const importer::Graph& graph, const Json& expected) {
    for (const DeviceShape& shape : device_shapes())
        if (shape.pipeline_stages == 1 &&
            shape.tensor_parallel <= (expected["config"]["num_kv_heads"] == 1 ? 3 : 2))
            check_run(graph, expected, shape);
}

bool runs(const Json& expected) {
    return !expected.contains("refused") && !expected.contains("opaque");
}

void for_each_export(const std::function<void(const Json&, const fs::path&)>& check) {
    const Json all = exporter_expectations();
    TemporaryFolder folder;
    for (const auto& [name, expected] : all.items()) {
        INFO(name << ", " << expected["tool"].get<std::string>());
        check(expected, unpack(name, folder.path()));
    }
}

// What the first of `devices` GPUs that share every layer launches for one token of the first
// layer: operators, and "sum" for an exchange.
std::vector<std::string> launches_of_layer(const importer::Graph& graph, int devices) {
    const DeviceShape shape{"", devices == 1 ? "sim:h100[0]" : "sim:h100[0-1]", devices, 1};
    planner::Workload workload;
    workload.context = 16;
    workload.prompt_tokens = 8;
    const planner::Plan plan = plan_for(graph, shape, workload);
    const codegen::Program program = codegen::generate_program(plan, planner::DeviceId(0));
    std::vector<std::string> launches;
    for (const codegen::Instruction& instruction : program.decode) {
        const planner::Step& step = plan.decode.steps[instruction.step.index()];
        if (step.layer != 0) continue;
        const auto kernel = static_cast<size_t>(instruction.kernel);
        launches.push_back(step.collective()
                               ? "sum"
                               : fmt::format("{}", fmt::join(program.kernels[kernel].fused, "+")));
    }
    return launches;
}

}  // namespace

TEST_CASE("every version of every exporter gives its model and the logits of transformers",
          "[e2e][exporters]") {
    std::set<std::string> seen;
    for_each_export([&](const Json& expected, const fs::path& path) {
        if (!runs(expected)) return;
        const importer::Graph graph = importer::import_onnx(path.string());
        for (const importer::Op& op : graph.ops) CHECK(!importer::keeps_onnx_form(op));
        CHECK(described(graph) == expected["config"]);
        check_interpreted(graph, expected);
        seen.insert(expected["model"]);
    });
    CHECK(seen.size() >= 20);
}

// The same float model in many forms, which share their kernels, and one in blocks of int4.
TEST_CASE("one model runs alike from every exporter's file, on one device and on several",
          "[e2e][exporters]") {
    int run = 0;
    for_each_export([&](const Json& expected, const fs::path& path) {
        const bool exact =
            expected["reference"] == "llama_two" && expected["tolerance"].get<double>() < 1e-3;
        if (!exact && expected["reference"] != "genai_0.9_int4") return;
        check_runs(importer::import_onnx(path.string()), expected);
        ++run;
    });
    CHECK(run > 10);
}

TEST_CASE("every exporter's file runs alike on one device and on several",
          "[e2e][exporters][slow]") {
    for_each_export([](const Json& expected, const fs::path& path) {
        if (runs(expected)) check_runs(importer::import_onnx(path.string()), expected);
    });
}

TEST_CASE("a factor of queries that changes with the position ends the context",
          "[e2e][exporters]") {
    TemporaryFolder folder;
    const importer::Graph graph =
        importer::import_onnx(unpack("dynamo_2.9_op18_ministral3", folder.path()).string());
    for (const importer::RopeTable& table : graph.rope_tables) CHECK(table.max_positions == 64);
    CHECK(graph.config.max_positions == 64);
}

TEST_CASE("what exporters write beyond a Llama is refused by name or kept for planning",
          "[e2e][exporters]") {
    for_each_export([](const Json& expected, const fs::path& path) {
        if (expected.contains("refused")) {
            const std::string error = user_error([&] { importer::import_onnx(path.string()); });
            CHECK_THAT(error, Catch::Matchers::Contains(expected["refused"].get<std::string>()));
        } else if (expected.contains("opaque")) {
            const importer::Graph graph = importer::import_onnx(path.string());
            std::string stopped;
            for (const importer::Op& op : graph.ops) {
                REQUIRE(op.kind == OpKind::kOpaque);
                stopped += op.as<importer::OpaqueAttrs>().reason;
            }
            CHECK_THAT(stopped, Catch::Matchers::Contains(expected.value("stopped", "")));
            CHECK(
                !plan_for(graph, device_shapes()[2], all_logits_workload(1, 16, 8)).stages.empty());
        }
    });
}

// A norm behind a block takes whole rows of what the blocks of a product make; OLMo 2 has them, and
// norms of all heads of q and of k, so that its attention is not cut.
TEST_CASE("a token of a layer takes five launches on a GPU, more where norms stand elsewhere",
          "[e2e][exporters]") {
    const std::map<std::string, size_t> more = {
        {"gemma2", 7}, {"gemma2_odd", 7}, {"gemma3", 7}, {"gemma3_local", 7}, {"olmo2", 14}};
    std::set<std::string> seen;
    for_each_export([&](const Json& expected, const fs::path& path) {
        const std::string model = expected["model"];
        if (!runs(expected) || seen.count(model)) return;
        const importer::Graph graph = importer::import_onnx(path.string());
        for (const importer::Weight& weight : graph.weights)
            if (weight.quantization.dynamic_activations) return;  // hosts alone compute it
        seen.insert(model);
        const size_t alone = more.count(model) ? more.at(model) : 5;
        for (int devices : {1, 2}) {
            const auto launches = launches_of_layer(graph, devices);
            const size_t sums = devices == 1 ? 0 : model == "olmo2" ? 1 : 2;
            INFO(model << " on " << devices << ": "
                       << fmt::format("{}", fmt::join(launches, ", ")));
            CHECK(std::count(launches.begin(), launches.end(), "sum") == static_cast<int>(sums));
            CHECK(launches.size() == alone + sums);
        }
    });
    CHECK(seen.size() >= 20);
    for (const char* model : {"gemma", "gemma3", "mistral", "olmo2", "phi3", "qwen2", "qwen3"})
        CHECK(seen.count(model) == 1);
}
