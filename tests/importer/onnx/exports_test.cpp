// SPDX-License-Identifier: Apache-2.0
// Files that real exporters wrote, against results of an independent implementation of the same
// weights.
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "importer/onnx/import.h"
#include "tests/support/reference.h"
#include "tests/support/test.h"

namespace cleave {
namespace {

struct Export {
    std::string file;
    std::string reference;
    std::string logits = "";  // in the model's folder, where the weights are quantised
    double tolerance = 1e-3;
};

const std::vector<Export>& exports() {
    static const std::vector<Export> kExports{
        {"stories260K/legacy_op17_past_sdpa.onnx", "stories260K"},
        {"stories260K/dynamo_op18_past_eager.onnx", "stories260K"},
        {"stories260K/dynamo_op18_past_sdpa.onnx", "stories260K"},
        {"stories260K/dynamo_op23_past_sdpa.onnx", "stories260K"},
        {"stories260K/genai_v0.11.4_fp32_cpu/model.onnx", "stories260K"},
        {"stories260K/mobius_default/model.onnx", "stories260K"},
        {"stories260K/optimum/model.onnx", "stories260K"},
        {"stories260K/derived/decoder_model_merged.onnx", "stories260K"},
        {"stories15M/dynamo_op18_past_sdpa_ext.onnx", "stories15M"},
        {"rand_gqa16/legacy_op17_past_sdpa.onnx", "rand_gqa16"},
        {"rand_gqa16/dynamo_op18_idsonly_sdpa.onnx", "rand_gqa16"},
        {"rand_gqa16/genai0114_fp32_cpu/model.onnx", "rand_gqa16"},
        {"rand_gqa16/mobius_default/model.onnx", "rand_gqa16"},
        {"rand_mha16/dynamo_op23_past_sdpa.onnx", "rand_mha16"},
        {"rand_llama3rope/dynamo_op18_past_sdpa.onnx", "rand_llama3rope"},
        {"rand_llama3rope/genaiHEAD_fp32_cpu/model.onnx", "rand_llama3rope"},
        {"rand_bias_headdim32/dynamo_op18_past_sdpa.onnx", "rand_bias_headdim32"},
        {"qwen2/genai018_fp32_cpu/model.onnx", "qwen2"},
        {"qwen3/dynamo_op23_past_sdpa.onnx", "qwen3"},
        {"mistral_sw8/dynamo_op23_past_sdpa.onnx", "mistral_sw8"},
        {"phi3/dynamo_op23_past_sdpa.onnx", "phi3"},
        {"gemma/legacy_op17_past_sdpa.onnx", "gemma"},
        {"llama_yarn/legacy_op17_past_sdpa.onnx", "llama_yarn"},
        // ONNX Runtime rounds activations to 8 bits here (accuracy_level 4).
        {"rand_gqa16/genai0114_int4_cpu/model.onnx", "rand_gqa16", "ort130.logits_prefill.f32",
         0.3},
        {"rand_gqa16/genai0114_int4_cpu_qdq/model.onnx", "rand_gqa16", "ort130.logits_prefill.f32",
         0.3},
    };
    return kExports;
}

std::vector<float> read_floats(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file);
    std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
    file.read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
    return values;
}

nlohmann::json reference_of(const Export& e) {
    std::ifstream file(test::shared_data() / "reference" / (e.reference + ".json"));
    REQUIRE(file);
    return nlohmann::json::parse(file);
}

double largest_difference(std::span<const double> a, std::span<const float> b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
    return largest;
}

TEST_CASE("Every exporter's file gives the logits of an independent implementation", "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (const Export& e : exports()) {
        INFO(e.file);
        const std::filesystem::path path = test::shared_data() / "models" / e.file;
        const importer::Graph graph = importer::import_onnx(path.string());
        const std::vector<int32_t> prompt = reference_of(e)["prompt_ids"];
        const std::vector<double> logits = test::reference_logits(graph, prompt);
        const std::filesystem::path expected =
            e.logits.empty()
                ? test::shared_data() / "reference" / (e.reference + ".logits_prefill.f32")
                : path.parent_path() / e.logits;
        CHECK(largest_difference(logits, read_floats(expected)) <= e.tolerance);
    }
}

TEST_CASE("A left-padded row has the logits of the row alone", "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (const Export& e : exports()) {
        if (!e.logits.empty()) continue;
        INFO(e.file);
        const auto graph =
            importer::import_onnx((test::shared_data() / "models" / e.file).string());
        if (graph.interface.assumes_right_padding)
            continue;  // the form itself cannot pad on the left
        const nlohmann::json batch = reference_of(e)["leftpad"];
        const std::vector<float> all =
            read_floats(test::shared_data() / "reference" / (e.reference + ".leftpad_logits.f32"));
        const size_t rows = batch["input_ids"].size(), columns = batch["input_ids"][0].size();
        const size_t vocab = all.size() / (rows * columns);
        for (size_t r = 0; r < rows; ++r) {
            std::vector<int32_t> ids;
            for (size_t c = 0; c < columns; ++c)
                if (batch["attention_mask"][r][c] == 1) ids.push_back(batch["input_ids"][r][c]);
            const std::vector<double> alone = test::reference_logits(graph, ids);
            const size_t begin = (r * columns + columns - ids.size()) * vocab;
            CHECK(largest_difference(alone, std::span(all).subspan(begin, ids.size() * vocab)) <=
                  1e-3);
        }
    }
}

TEST_CASE("Forms of one model are recovered as the same operators", "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    std::string first;
    for (const char* file : {"legacy_op17_past_sdpa.onnx", "dynamo_op18_past_eager.onnx",
                             "dynamo_op18_past_sdpa.onnx", "dynamo_op23_past_sdpa.onnx",
                             "optimum/model.onnx", "derived/decoder_model_merged.onnx"}) {
        const auto path = test::shared_data() / "models" / "stories260K" / file;
        const std::string text = importer::to_text(importer::import_onnx(path.string()));
        if (first.empty()) first = text;
        INFO(file);
        CHECK(text == first);
    }
}

TEST_CASE("Every operator keeps the nodes it came from, and every weight lies in a file",
          "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (const Export& e : exports()) {
        INFO(e.file);
        const auto graph =
            importer::import_onnx((test::shared_data() / "models" / e.file).string());
        for (const importer::Op& op : graph.ops)
            if (op.kind != importer::OpKind::kSelectTokens) CHECK(!op.onnx_nodes.empty());
        for (const importer::Weight& w : graph.weights) {
            CHECK(w.data.has_data());
            CHECK(!w.initializers.empty());
            if (w.packed_bytes() > 256) CHECK(w.data.file.valid());
        }
    }
}

TEST_CASE("A sliding window, per-head norms, scaled embeddings and yarn are read from the graph",
          "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const auto import = [](const char* file) {
        return importer::import_onnx((test::shared_data() / "models" / file).string());
    };
    for (const importer::Op& op : import("mistral_sw8/dynamo_op23_past_sdpa.onnx").ops)
        if (op.kind == importer::OpKind::kAttention)
            CHECK(op.as<importer::AttentionAttrs>().window == 8);
    const importer::Graph gemma = import("gemma/legacy_op17_past_sdpa.onnx");
    CHECK(gemma.ops.front().as<importer::EmbeddingAttrs>().scale == 8.0f);
    const importer::Graph yarn = import("llama_yarn/legacy_op17_past_sdpa.onnx");
    REQUIRE(yarn.rope_tables.size() == 1);
    CHECK(yarn.rope_tables[0].magnitude > 1.0);
    int head_norms = 0;
    for (const importer::Op& op : import("qwen3/dynamo_op23_past_sdpa.onnx").ops)
        head_norms +=
            op.kind == importer::OpKind::kRmsNorm && op.as<importer::RmsNormAttrs>().group == 32;
    CHECK(head_norms == 4);  // q and k in two layers
}

TEST_CASE("MatMulNBits and DequantizeLinear of the same weights give the same logits",
          "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    const auto logits = [](const char* file) {
        const auto graph =
            importer::import_onnx((test::shared_data() / "models" / "rand_gqa16" / file).string());
        return test::reference_logits(graph, std::vector<int32_t>{1, 5, 9, 200, 31});
    };
    const std::vector<double> a = logits("genai0114_int4_cpu/model.onnx"),
                              b = logits("genai0114_int4_cpu_qdq/model.onnx");
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) REQUIRE(std::fabs(a[i] - b[i]) < 1e-6);
}

TEST_CASE("Quantised weights stay quantised", "[importer]") {
    CLEAVE_NEEDS_SHARED_DATA();
    for (const char* file : {"rand_gqa16/genai0114_int4_cpu/model.onnx",
                             "rand_gqa16/genai0114_int4_cpu_qdq/model.onnx",
                             "stories260K/genai_v0.11.4_int4_cpu/model.onnx"}) {
        INFO(file);
        const auto graph = importer::import_onnx((test::shared_data() / "models" / file).string());
        for (const importer::Op& op : graph.ops) {
            if (op.kind != importer::OpKind::kLinear) continue;
            const importer::Weight& w = graph.weight(op.weights[0]);
            CHECK(w.packing != importer::Packing::kDense);
            CHECK(dtype_bits(w.dtype) == 4);
            CHECK(w.packed_bytes() < w.num_elements());
        }
    }
}

}  // namespace
}  // namespace cleave
