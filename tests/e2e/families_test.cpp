// SPDX-License-Identifier: Apache-2.0
// Hugging Face folders of each family, as transformers saves them (tests/files/families): converted
// in memory they give its tokens and logits, interpreted and on one device and several.
#include <fstream>
#include <functional>

#include <nlohmann/json.hpp>

#include "models/convert.h"
#include "tests/e2e/support.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

// transformers computes in f32, too.
constexpr double kFamilyTolerance = 1e-4;

fs::path family_files() { return source_root() / "tests" / "files" / "families"; }

void for_each_family(const std::function<void(const std::string&, const nlohmann::json&)>& check) {
    std::ifstream file(family_files() / "expectations.json");
    REQUIRE(file);
    const nlohmann::json all = nlohmann::json::parse(file);
    CHECK(all.size() >= 20);
    for (const auto& [name, expected] : all.items()) {
        INFO(name);
        check(name, expected);
    }
}

std::vector<float> family_logits(const std::string& name) {
    return read_floats(family_files() / "references" / (name + ".f32"));
}

}  // namespace

TEST_CASE("a folder of each family, converted in memory, has the logits of transformers",
          "[e2e][families]") {
    for_each_family([](const std::string& name, const nlohmann::json& expected) {
        const importer::Graph graph = models::import_folder((family_files() / name).string());
        std::vector<int32_t> tokens = expected["prompt"];
        for (const nlohmann::json& token : expected["new_tokens"]) tokens.push_back(token);
        tokens.pop_back();
        const std::vector<double> logits = reference_logits(graph, tokens);
        CHECK(largest_difference({logits.begin(), logits.end()}, family_logits(name)) <
              kFamilyTolerance);
    });
}

TEST_CASE("a folder of each family writes the tokens of transformers on one device, tp 2 and pp 2",
          "[e2e][families]") {
    for_each_family([](const std::string& name, const nlohmann::json& expected) {
        const importer::Graph graph = models::import_folder((family_files() / name).string());
        for (const DeviceShape& shape : device_shapes()) {
            if (shape.tensor_parallel * shape.pipeline_stages > 2) continue;
            INFO(shape.name);
            const std::vector<int32_t> tokens = expected["new_tokens"];
            const auto sequence =
                continue_prompt(graph, shape, expected["prompt"], tokens.size(), DType::kF32);
            CHECK(sequence.token_ids == tokens);
            CHECK(largest_difference(sequence.logits, family_logits(name)) < kFamilyTolerance);
        }
    });
}

TEST_CASE("a rotary embedding that changes with the length ends the context there",
          "[e2e][families]") {
    for (const auto& [name, positions] : {std::pair{"llama_dynamic", 16}, {"phi3_partial", 16}}) {
        const importer::Graph graph = models::import_folder((family_files() / name).string());
        REQUIRE(graph.rope_tables.size() == 1);
        CHECK(graph.rope_tables[0].max_positions == positions);
    }
}
