// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/random_gguf.h"

#include <array>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/errors.h"
#include "runtime/base/split_mix.h"

namespace cleave::bench {

namespace {

constexpr uint64_t kGgufAlignment = 32;

// Values as they stand in a GGUF file.
class GgufText {
public:
    template <class T>
    void value(T number) {
        bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
    void text(std::string_view s) {
        value<uint64_t>(s.size());
        bytes_ += s;
    }
    void number(std::string_view key, int64_t n) {
        field<uint32_t>(key, 4, static_cast<uint32_t>(n));
    }
    void real(std::string_view key, double x) { field<float>(key, 6, static_cast<float>(x)); }
    void word(std::string_view key, std::string_view s) {
        begin(key, 8);
        text(s);
    }
    // Its elements follow.
    void array(std::string_view key, uint32_t type, uint64_t count) {
        begin(key, 9);
        value(type);
        value(count);
    }
    void pad() {
        bytes_.resize((bytes_.size() + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment);
    }
    int64_t fields() const { return fields_; }
    const std::string& bytes() const { return bytes_; }

private:
    void begin(std::string_view key, uint32_t type) {
        text(key);
        value(type);
        ++fields_;
    }
    template <class T>
    void field(std::string_view key, uint32_t type, T number) {
        begin(key, type);
        value(number);
    }

    std::string bytes_;
    int64_t fields_ = 0;
};

struct GgufTensor {
    std::string name;
    std::vector<int64_t> dims;  // the innermost first
};

std::vector<GgufTensor> tensors_of(const importer::ModelConfig& c) {
    const int64_t kv = c.num_kv_heads * c.head_dim, heads = c.num_heads * c.head_dim;
    std::vector<GgufTensor> tensors{{"token_embd.weight", {c.hidden_size, c.vocab_size}},
                                    {"output_norm.weight", {c.hidden_size}}};
    for (int64_t layer = 0; layer < c.num_layers; ++layer) {
        const auto add = [&](const char* name, std::vector<int64_t> dims) {
            tensors.push_back({fmt::format("blk.{}.{}.weight", layer, name), std::move(dims)});
        };
        add("attn_norm", {c.hidden_size});
        add("attn_q", {c.hidden_size, heads});
        add("attn_k", {c.hidden_size, kv});
        add("attn_v", {c.hidden_size, kv});
        add("attn_output", {heads, c.hidden_size});
        add("ffn_norm", {c.hidden_size});
        add("ffn_gate", {c.hidden_size, c.intermediate_size});
        add("ffn_up", {c.hidden_size, c.intermediate_size});
        add("ffn_down", {c.intermediate_size, c.hidden_size});
    }
    return tensors;
}

uint64_t padded_bytes(const GgufTensor& tensor) {
    uint64_t bytes = sizeof(float);
    for (const int64_t dim : tensor.dims) bytes *= static_cast<uint64_t>(dim);
    return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

// Prompts and answers are numbers: the words are never seen.
void add_vocabulary(GgufText& head, int64_t size) {
    constexpr int64_t kBytes = 256, kFirst = 2;
    const auto count = static_cast<uint64_t>(size);
    head.word("tokenizer.ggml.model", "llama");
    head.array("tokenizer.ggml.tokens", 8, count);
    head.text("<s>");
    head.text("</s>");
    for (int64_t i = 0; i < size - kFirst; ++i)
        head.text(i < kBytes ? fmt::format("<0x{:02X}>", i) : fmt::format("t{}", i));
    head.array("tokenizer.ggml.scores", 6, count);
    for (int64_t i = 0; i < size; ++i) head.value(0.0f);
    head.array("tokenizer.ggml.token_type", 5, count);
    for (int64_t i = 0; i < size; ++i)
        head.value<int32_t>(i < kFirst ? 3 : i < kFirst + kBytes ? 6 : 1);
    head.number("tokenizer.ggml.bos_token_id", 0);
    head.number("tokenizer.ggml.eos_token_id", 1);
}

}  // namespace

void write_random_gguf(const importer::ModelConfig& config, const std::string& path) {
    GgufText head;
    head.word("general.architecture", "llama");
    head.number("llama.context_length", config.max_positions);
    head.number("llama.embedding_length", config.hidden_size);
    head.number("llama.block_count", config.num_layers);
    head.number("llama.feed_forward_length", config.intermediate_size);
    head.number("llama.attention.head_count", config.num_heads);
    head.number("llama.attention.head_count_kv", config.num_kv_heads);
    head.number("llama.rope.dimension_count", config.head_dim);
    head.real("llama.attention.layer_norm_rms_epsilon", 1e-5);
    head.number("llama.vocab_size", config.vocab_size);
    add_vocabulary(head, config.vocab_size);
    const std::vector<GgufTensor> tensors = tensors_of(config);
    GgufText file;
    file.value(std::array<char, 4>{'G', 'G', 'U', 'F'});
    file.value<uint32_t>(3);
    file.value<uint64_t>(tensors.size());
    file.value<uint64_t>(static_cast<uint64_t>(head.fields()));
    std::string bytes = file.bytes() + head.bytes();
    GgufText infos;
    uint64_t offset = 0;
    for (const GgufTensor& tensor : tensors) {
        infos.text(tensor.name);
        infos.value(static_cast<uint32_t>(tensor.dims.size()));
        for (const int64_t dim : tensor.dims) infos.value(static_cast<uint64_t>(dim));
        infos.value<uint32_t>(0);  // f32
        infos.value(offset);
        offset += padded_bytes(tensor);
    }
    bytes += infos.bytes();
    bytes.resize((bytes.size() + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment);
    std::ofstream out(path, std::ios::binary);
    out << bytes;
    SplitMix64 random(7);
    for (const GgufTensor& tensor : tensors) {
        std::vector<float> values(padded_bytes(tensor) / sizeof(float));
        const float width = tensor.dims.size() == 1 ? 2.0f : 0.08f;
        for (float& value : values) value = width * static_cast<float>(random.unit() - 0.5);
        out.write(reinterpret_cast<const char*>(values.data()),
                  static_cast<std::streamsize>(values.size() * sizeof(float)));
    }
    out.close();
    if (!out) throw UserError("{}: cannot be written", path);
}

}  // namespace cleave::bench
