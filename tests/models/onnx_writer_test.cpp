// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "importer/onnx/import.h"
#include "models/convert.h"
#include "models/llama_graph.h"
#include "models/onnx_writer.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::models;
using namespace cleave::test;

namespace {

Shape small_shape() {
    Shape shape = *find_shape("stories-260k");
    shape.config.hidden_size = 32;
    shape.config.intermediate_size = 40;
    shape.config.num_layers = 2;
    shape.config.num_heads = 4;
    shape.config.num_kv_heads = 2;
    shape.config.head_dim = 16;  // not hidden / heads
    shape.config.vocab_size = 50;
    shape.config.max_positions = 64;
    shape.config.tied_embeddings = false;
    return shape;
}

double max_difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double d = 0;
    for (size_t i = 0; i < a.size(); ++i) d = std::max(d, std::fabs(a[i] - b[i]));
    return d;
}

}  // namespace

TEST_CASE("the decomposed form imports as the graph that is built without a file", "[models]") {
    test::TemporaryFolder folder;
    Shape shape = small_shape();
    std::string path = write_onnx_llama(shape, folder.path().string(), {});
    CHECK(importer::to_text(importer::import_onnx(path)) ==
          importer::to_text(build_llama_graph(shape, DType::kF32)));
}

TEST_CASE("every form gives the same logits for the same seed", "[models]") {
    const std::vector<int32_t> tokens{1, 7, 3, 44, 2, 9};
    std::vector<double> expected;
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention,
                          OnnxForm::kGroupQueryAttention, OnnxForm::kFunctions}) {
        test::TemporaryFolder folder;
        WriteOptions options;
        options.form = form;
        std::vector<double> logits = reference_logits(
            importer::import_onnx(write_onnx_llama(small_shape(), folder.path().string(), options)),
            tokens);
        if (expected.empty()) expected = logits;
        CHECK(max_difference(logits, expected) < 1e-5);
    }
}

TEST_CASE("biases, tied embeddings and a sliding window survive every form that has them",
          "[models]") {
    Shape shape = small_shape();
    shape.qkv_bias = shape.o_bias = shape.mlp_bias = true;
    shape.config.tied_embeddings = true;
    shape.sliding_window = 3;
    const std::vector<int32_t> tokens{1, 7, 3, 44, 2, 9, 30};
    std::vector<double> expected;
    for (OnnxForm form : {OnnxForm::kDecomposed, OnnxForm::kAttention, OnnxForm::kFunctions}) {
        test::TemporaryFolder folder;
        WriteOptions options;
        options.form = form;
        importer::Graph graph =
            importer::import_onnx(write_onnx_llama(shape, folder.path().string(), options));
        CHECK(graph.config.tied_embeddings);
        std::vector<double> logits = reference_logits(graph, tokens);
        if (expected.empty()) expected = logits;
        CHECK(max_difference(logits, expected) < 1e-5);
    }
}

TEST_CASE("graphs without a past and without position ids mean the same", "[models]") {
    const std::vector<int32_t> tokens{5, 6, 7, 8};
    std::vector<double> expected;
    for (bool past : {true, false})
        for (bool positions : {true, false}) {
            test::TemporaryFolder folder;
            WriteOptions options;
            options.with_past = past;
            options.with_position_ids = positions;
            std::vector<double> logits =
                reference_logits(importer::import_onnx(write_onnx_llama(
                                     small_shape(), folder.path().string(), options)),
                                 tokens);
            if (expected.empty()) expected = logits;
            CHECK(max_difference(logits, expected) < 1e-9);
        }
}

TEST_CASE("the same seed writes the same bytes and another seed others", "[models]") {
    auto bytes = [](uint64_t seed) {
        test::TemporaryFolder folder;
        WriteOptions options;
        options.seed = seed;
        std::string path =
            write_onnx_llama(small_shape(), folder.path().string(), options) + ".data";
        std::ifstream file(path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    CHECK(bytes(1) == bytes(1));
    CHECK(bytes(1) != bytes(2));
}

TEST_CASE("an interrupted or refused write leaves no model behind", "[models]") {
    test::TemporaryFolder folder;
    WriteOptions options;
    options.form = OnnxForm::kGroupQueryAttention;
    options.with_past = false;
    CHECK_THAT(
        test::user_error([&] { write_onnx_llama(small_shape(), folder.path().string(), options); }),
        Catch::Matchers::Contains("with_past"));
    CHECK(std::filesystem::is_empty(folder.path()));
    options = {};
    options.dtype = DType::kInt8;
    CHECK_THAT(
        test::user_error([&] { write_onnx_llama(small_shape(), folder.path().string(), options); }),
        Catch::Matchers::Contains("f32, f16 and bf16"));
}

TEST_CASE("config.json files are read field by field and refused by name", "[models]") {
    test::TemporaryFolder folder;
    std::string path = (folder.path() / "config.json").string();
    auto write = [&](const std::string& text) { std::ofstream(path) << text; };
    write_onnx_llama(small_shape(), folder.path().string(), {});
    Shape shape = shape_from_config(path);
    CHECK(importer::to_text(build_llama_graph(shape, DType::kF32)) ==
          importer::to_text(build_llama_graph(small_shape(), DType::kF32)));
    write("[]");
    CHECK_THAT(test::user_error([&] { shape_from_config(path); }),
               Catch::Matchers::Contains("not a JSON object"));
    write(R"({"model_type": "bert"})");
    CHECK_THAT(test::user_error([&] { shape_from_config(path); }),
               Catch::Matchers::Contains("bert"));
    write(R"({"model_type": "llama", "vocab_size": 5})");
    CHECK_THAT(test::user_error([&] { shape_from_config(path); }),
               Catch::Matchers::Contains("hidden_size"));
    write(R"({"model_type": "llama", "vocab_size": -5})");
    CHECK_THAT(test::user_error([&] { shape_from_config(path); }),
               Catch::Matchers::Contains("vocab_size"));
}

TEST_CASE("shape names give the parameter counts that their makers state", "[models]") {
    auto parameters = [](const char* name) {
        const importer::Graph graph = graph_of_shape(*find_shape(name), DType::kBF16);
        double n = 0;
        for (const importer::Weight& w : graph.weights) n += static_cast<double>(w.num_elements());
        return n / 1e9;
    };
    CHECK(parameters("tinyllama-1.1b") == Approx(1.10).margin(0.005));
    CHECK(parameters("llama-3.2-1b") == Approx(1.236).margin(0.002));
    CHECK(parameters("llama-2-7b") == Approx(6.738).margin(0.001));
    CHECK(parameters("llama-3-8b") == Approx(8.030).margin(0.001));
    CHECK(parameters("llama-2-70b") == Approx(68.98).margin(0.01));
    CHECK(parameters("llama-3-70b") == Approx(70.55).margin(0.01));
    CHECK(parameters("llama-3.1-405b") == Approx(405.85).margin(0.1));
    CHECK(parameters("llama-3.2-3b") == Approx(3.213).margin(0.001));
    CHECK(parameters("llama-3.1-8b") == Approx(8.030).margin(0.001));
    CHECK(parameters("llama-3.3-70b") == Approx(70.55).margin(0.01));
    CHECK(parameters("mistral-7b") == Approx(7.248).margin(0.001));
    CHECK(parameters("mistral-small-24b") == Approx(23.57).margin(0.01));
    CHECK(parameters("qwen2.5-7b") == Approx(7.616).margin(0.001));
    CHECK(parameters("qwen2.5-14b") == Approx(14.77).margin(0.01));
    CHECK(parameters("qwen2.5-32b") == Approx(32.76).margin(0.01));
    CHECK(parameters("qwen2.5-72b") == Approx(72.71).margin(0.01));
    CHECK(parameters("qwen3-4b") == Approx(4.022).margin(0.001));
    CHECK(parameters("qwen3-8b") == Approx(8.191).margin(0.001));
    CHECK(parameters("qwen3-32b") == Approx(32.76).margin(0.01));
    CHECK(parameters("phi-3-mini") == Approx(3.821).margin(0.001));
    CHECK(parameters("phi-4") == Approx(14.66).margin(0.01));
    CHECK(parameters("gemma-2-2b") == Approx(2.614).margin(0.001));
    CHECK(parameters("gemma-2-9b") == Approx(9.242).margin(0.001));
    CHECK(parameters("gemma-2-27b") == Approx(27.23).margin(0.01));
    CHECK(parameters("gemma-3-1b") == Approx(0.9999).margin(0.0002));
    CHECK(parameters("gemma-3-4b") == Approx(3.880).margin(0.001));
    CHECK(parameters("gemma-3-12b") == Approx(11.77).margin(0.01));
    CHECK(parameters("gemma-3-27b") == Approx(27.01).margin(0.01));
}
