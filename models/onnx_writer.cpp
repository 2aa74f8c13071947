// SPDX-License-Identifier: Apache-2.0
#include "models/onnx_writer.h"

#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "models/onnx_forms.h"
#include "runtime/base/convert.h"
#include "runtime/base/errors.h"
#include "runtime/base/file_set.h"

namespace cleave::models {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDataAlignment = 4096;  // so that a memory map of any tensor starts on a page

int64_t num_elements(const Tensor& tensor) {
    int64_t n = 1;
    for (int64_t d : tensor.shape) n *= d;
    return n;
}

// SplitMix64's finaliser (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Sum of four uniform 16-bit lanes (Irwin-Hall, n = 4): close to normal, one hash an element.
float random_element(uint64_t key, int64_t index, float scale) {
    uint64_t h = mix(key + 0x9e3779b97f4a7c15u * static_cast<uint64_t>(index + 1));
    auto sum =
        static_cast<float>((h & 0xffff) + ((h >> 16) & 0xffff) + ((h >> 32) & 0xffff) + (h >> 48));
    // Mean 4 * 32767.5; the variance of one lane is 65536^2 / 12.
    return (sum - 131070.0f) * (1.7320508f / 65536.0f) * scale;
}

uint64_t tensor_key(uint64_t seed, const std::string& name) {
    uint64_t key = mix(seed + 0x243f6a8885a308d3u);
    for (char c : name) key = mix(key ^ static_cast<unsigned char>(c));
    return key;
}

// Elements [begin, end) of a tensor in `dtype`.
void fill(const Tensor& tensor, uint64_t seed, DType dtype, int64_t begin, int64_t end,
          std::string& bytes) {
    const uint64_t key = tensor_key(seed, tensor.name);
    const float scale =
        tensor.fan_in > 0 ? 1.0f / std::sqrt(static_cast<float>(tensor.fan_in)) : 0.0f;
    std::vector<float> values(static_cast<size_t>(end - begin));
    for (int64_t i = begin; i < end; ++i)
        values[static_cast<size_t>(i - begin)] =
            tensor.fan_in > 0 ? random_element(key, i, scale) : 1.0f;
    bytes.resize(static_cast<size_t>(dtype_bytes(dtype, end - begin)));
    convert_elements(DType::kF32, values.data(), dtype, bytes.data(), end - begin);
}

void write_data(const std::vector<Tensor>& tensors, const WriteOptions& options, std::ostream& file,
                const std::vector<int64_t>& offsets) {
    constexpr int64_t kBlock = int64_t{1} << 20;
    std::string bytes;
    for (size_t t = 0; t < tensors.size(); ++t) {
        const int64_t n = num_elements(tensors[t]);
        file.seekp(offsets[t]);
        for (int64_t i = 0; i < n; i += kBlock) {
            if (options.cancel) options.cancel->throw_if_cancelled();
            fill(tensors[t], options.seed, options.dtype, i, std::min(n, i + kBlock), bytes);
            file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
        }
    }
}

void add_external(onnx::TensorProto& proto, const char* key, const std::string& value) {
    auto* entry = proto.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
}

// Initializers of the recorded weights; returns the place of each in the data file.
std::vector<int64_t> add_initializers(const OnnxBuilder& builder, const WriteOptions& options,
                                      onnx::GraphProto& graph) {
    std::vector<int64_t> offsets;
    int64_t offset = 0;
    for (const Tensor& tensor : builder.tensors()) {
        onnx::TensorProto* proto = graph.add_initializer();
        proto->set_name(tensor.name);
        proto->set_data_type(builder.dtype());
        for (int64_t d : tensor.shape) proto->add_dims(d);
        const int64_t bytes = dtype_bytes(options.dtype, num_elements(tensor));
        offsets.push_back(offset);
        if (options.external_data) {
            proto->set_data_location(onnx::TensorProto::EXTERNAL);
            add_external(*proto, "location", "model.onnx.data");
            add_external(*proto, "offset", std::to_string(offset));
            add_external(*proto, "length", std::to_string(bytes));
        } else {
            std::string raw;
            fill(tensor, options.seed, options.dtype, 0, num_elements(tensor), raw);
            proto->set_raw_data(std::move(raw));
        }
        offset += (bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
    }
    return offsets;
}

void write_config(const Shape& shape, const fs::path& path, FileSet& files) {
    const importer::ModelConfig& c = shape.config;
    nlohmann::ordered_json json{{"architectures", {"LlamaForCausalLM"}},
                                {"model_type", c.model_type},
                                {"vocab_size", c.vocab_size},
                                {"hidden_size", c.hidden_size},
                                {"intermediate_size", c.intermediate_size},
                                {"num_hidden_layers", c.num_layers},
                                {"num_attention_heads", c.num_heads},
                                {"num_key_value_heads", c.num_kv_heads},
                                {"head_dim", c.head_dim},
                                {"max_position_embeddings", c.max_positions},
                                {"rms_norm_eps", c.rms_norm_eps},
                                {"rope_theta", c.rope_theta},
                                {"hidden_act", "silu"},
                                {"attention_bias", shape.qkv_bias},
                                {"mlp_bias", shape.mlp_bias},
                                {"tie_word_embeddings", c.tied_embeddings}};
    if (c.model_type == "mistral")
        json["sliding_window"] = shape.sliding_window > 0
                                     ? nlohmann::ordered_json(shape.sliding_window)
                                     : nlohmann::ordered_json();
    if (shape.rope_scaling_factor > 0)
        json["rope_scaling"] = {
            {"rope_type", "llama3"},
            {"factor", shape.rope_scaling_factor},
            {"low_freq_factor", shape.rope_low_freq_factor},
            {"high_freq_factor", shape.rope_high_freq_factor},
            {"original_max_position_embeddings", shape.rope_original_positions}};
    files.add(path, [&](std::ostream& file) { file << json.dump(2) << "\n"; });
}

}  // namespace

std::string write_onnx_llama(const Shape& shape, const std::string& directory,
                             const WriteOptions& options) {
    FileSet files;
    files.make_folder(directory);
    if (options.weights == WriteOptions::Weights::kNone && !options.external_data)
        throw UserError(
            "a model without weights keeps them in a file that is absent: external_data must be "
            "set");
    onnx::ModelProto model;
    model.set_producer_name("cleave");
    model.mutable_graph()->set_name(shape.name);
    OnnxBuilder builder(model, options.dtype);
    build_onnx_graph(shape, options, model, builder);
    std::vector<int64_t> offsets = add_initializers(builder, options, *model.mutable_graph());

    const fs::path path = fs::path(directory) / "model.onnx";
    if (options.external_data && options.weights == WriteOptions::Weights::kRandom) {
        files.add(path.string() + ".data", [&](std::ostream& file) {
            write_data(builder.tensors(), options, file, offsets);
        });
    }
    write_config(shape, fs::path(directory) / "config.json", files);
    files.add(path, [&](std::ostream& file) {
        if (!model.SerializeToOstream(&file))
            throw UserError(
                "{} would be larger than Protobuf's limit of 2 GB: write it with external data",
                path.string());
    });
    files.commit();
    return path.string();
}

}  // namespace cleave::models
