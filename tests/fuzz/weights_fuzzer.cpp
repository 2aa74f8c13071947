// SPDX-License-Identifier: Apache-2.0
// A GGUF file: its model, some of its numbers, its tokenizer; or the index of a folder's
// .safetensors files; or else such a file, beside the config.json of a small Llama.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "importer/weights/weight_reader.h"
#include "models/convert.h"
#include "models/gguf_model.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/generation_config.h"
#include "runtime/text/gguf_texts.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/harness.h"

namespace {

using namespace cleave;

// The sizes of tests/files/families/llama.
constexpr std::string_view kConfig = R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 16,
"intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16,
"num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
"tie_word_embeddings": false})";

void read_numbers(const importer::Graph& graph) {
    const importer::WeightReader reader(graph);
    for (const importer::Weight& weight : graph.weights) {
        const bool matrix = weight.shape.size() == 2;
        const importer::Range rows{0, std::min<int64_t>(2, weight.shape.at(0))};
        const importer::Range columns{0, matrix ? std::min<int64_t>(512, weight.shape[1]) : 1};
        std::vector<float> numbers(static_cast<size_t>(rows.size() * columns.size()));
        reader.read(weight, rows, columns, DType::kF32, std::as_writable_bytes(std::span(numbers)));
    }
}

void read_gguf_file(const std::filesystem::path& path) {
    fuzz::try_to([&] { read_numbers(models::import_gguf(path.string())); });
    // The library of SentencePiece cannot be opened beside the Protobuf of this program.
    fuzz::try_to([&] {
        if (!runtime::gguf_sentencepiece_model(read_gguf(path.string())))
            runtime::load_tokenizer(path)->encode("Once upon \xe2\x82\xac\xff a 12");
    });
    fuzz::try_to([&] { runtime::load_chat_template(path); });
    fuzz::try_to([&] { runtime::load_generation_config(path); });
}

// Beside a file without tensors.
void read_index(std::string_view bytes) {
    fuzz::write_file(std::string("\2\0\0\0\0\0\0\0{}", 10), "model-00001-of-00001.safetensors");
    const std::filesystem::path path = fuzz::write_file(bytes, "model.safetensors.index.json");
    fuzz::try_to([&] { models::import_folder(path.parent_path().string()); });
    std::filesystem::remove(path);
}

}  // namespace

void cleave::fuzz::run_input(std::string_view bytes) {
    if (bytes.starts_with("GGUF")) return read_gguf_file(write_file(bytes, "model.gguf"));
    write_file(kConfig, "config.json");
    if (bytes.starts_with("{")) return read_index(bytes);
    const std::filesystem::path path = write_file(bytes, "model.safetensors");
    read_numbers(models::import_folder(path.parent_path().string()));
}
