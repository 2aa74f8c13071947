// SPDX-License-Identifier: Apache-2.0
// GGUF files (tests/files/gguf) against transformers, whose models they were made from.
#include <fstream>

#include <nlohmann/json.hpp>

#include "importer/weights/quantize.h"
#include "models/gguf_model.h"
#include "planner/file/plan_file.h"
#include "tests/e2e/support.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

fs::path files() { return source_root() / "tests" / "files"; }

importer::Graph gguf_model(const std::string& name) {
    return models::import_gguf((files() / "gguf" / (name + ".gguf")).string());
}

}  // namespace

TEST_CASE("GGUF files write the tokens of transformers on one device, tp 2 and pp 2",
          "[e2e][gguf]") {
    std::ifstream file(files() / "families" / "expectations.json");
    const nlohmann::json all = nlohmann::json::parse(file);
    size_t checked = 0;
    for (const auto& [name, expected] : all.items()) {
        if (!fs::exists(files() / "gguf" / (name + ".gguf"))) continue;
        INFO(name);
        const importer::Graph graph = gguf_model(name);
        const auto logits = read_floats(files() / "families" / "references" / (name + ".f32"));
        const std::vector<int32_t> tokens = expected["new_tokens"];
        for (const DeviceShape& shape : device_shapes()) {
            if (shape.tensor_parallel * shape.pipeline_stages > 2) continue;
            INFO(shape.name);
            const auto sequence =
                continue_prompt(graph, shape, expected["prompt"], tokens.size(), DType::kF32);
            CHECK(sequence.token_ids == tokens);
            CHECK(largest_difference(sequence.logits, logits) < 1e-4);  // as families_test.cpp
        }
        ++checked;
    }
    CHECK(checked == 20);
}

TEST_CASE("a GGUF file of blocks has the logits of its expanded numbers on every shape",
          "[e2e][gguf]") {
    const std::string path = (files() / "gguf" / "blocks.gguf").string();
    const std::vector<int32_t> prompt{1, 17, 40, 5, 33, 60, 9};
    CHECK_THAT(
        user_error([&] {
            plan_for(models::import_gguf(path), device_shapes()[0], all_logits_workload(1, 16, 8));
        }),
        Catch::Matchers::Contains("Q6_K (3 tensors)") && Catch::Matchers::Contains("$dtype int8"));
    for (const DType to : {DType::kInt8, DType::kInt4}) {
        INFO(dtype_name(to));
        const importer::Graph graph = quantize_weights(models::import_gguf(path), to);
        const std::vector<double> expected = reference_logits(graph, prompt);
        for (const DeviceShape& shape : device_shapes()) {
            if (shape.tensor_parallel * shape.pipeline_stages > 2) continue;
            INFO(shape.name);
            auto logits = continue_prompt(graph, shape, prompt, 1, DType::kF32).logits;
            CHECK(largest_difference(logits, {expected.begin(), expected.end()}) < 1e-3);
        }
    }
}

TEST_CASE("a saved plan of a GGUF file is read back whole", "[e2e][gguf]") {
    const importer::Graph graph = quantize_weights(
        models::import_gguf((files() / "gguf" / "blocks.gguf").string()), DType::kInt8);
    const planner::Plan plan = plan_for(graph, device_shapes()[0], all_logits_workload(1, 16, 8));
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "x.plan").string();
    planner::save_plan(plan, path);
    const planner::Plan read = planner::load_plan(path);
    REQUIRE(read.graph.weights.size() == graph.weights.size());
    for (size_t w = 0; w < graph.weights.size(); ++w)
        CHECK(read.graph.weights[w].gguf == graph.weights[w].gguf);
}
