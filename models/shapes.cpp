// SPDX-License-Identifier: Apache-2.0
#include "models/shapes.h"

#include <nlohmann/json.hpp>

#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"

namespace cleave::models {
namespace {

using Json = nlohmann::json;

struct Row {
    const char* name;
    int64_t vocab, hidden, intermediate, layers, heads, kv_heads, positions;
    double theta;
    bool tied;
    double scaling;  // llama3 rope scaling factor, 0: none
    DType dtype;
};

// From the published config.json of each model; llama-110m and stories-260k from llama2.c's README.
constexpr Row kRows[] = {
    {"stories-260k", 512, 64, 172, 5, 8, 4, 512, 1e4, true, 0, DType::kF32},
    {"llama-110m", 32000, 768, 2048, 12, 12, 12, 1024, 1e4, true, 0, DType::kBF16},
    {"tinyllama-1.1b", 32000, 2048, 5632, 22, 32, 4, 2048, 1e4, false, 0, DType::kBF16},
    {"llama-3.2-1b", 128256, 2048, 8192, 16, 32, 8, 131072, 5e5, true, 32, DType::kBF16},
    {"llama-2-7b", 32000, 4096, 11008, 32, 32, 32, 4096, 1e4, false, 0, DType::kBF16},
    {"llama-3-8b", 128256, 4096, 14336, 32, 32, 8, 8192, 5e5, false, 0, DType::kBF16},
    {"llama-2-70b", 32000, 8192, 28672, 80, 64, 8, 4096, 1e4, false, 0, DType::kBF16},
    {"llama-3-70b", 128256, 8192, 28672, 80, 64, 8, 8192, 5e5, false, 0, DType::kBF16},
    {"llama-3.1-405b", 128256, 16384, 53248, 126, 128, 8, 131072, 5e5, false, 8, DType::kBF16},
};

Shape shape_of(const Row& row) {
    Shape shape;
    shape.name = row.name;
    shape.config.vocab_size = row.vocab;
    shape.config.hidden_size = row.hidden;
    shape.config.intermediate_size = row.intermediate;
    shape.config.num_layers = row.layers;
    shape.config.num_heads = row.heads;
    shape.config.num_kv_heads = row.kv_heads;
    shape.config.head_dim = row.hidden / row.heads;
    shape.config.max_positions = row.positions;
    shape.config.rope_theta = row.theta;
    shape.config.tied_embeddings = row.tied;
    shape.rope_scaling_factor = row.scaling;
    shape.dtype = row.dtype;
    return shape;
}

// Far beyond any model: the largest of 2026 have 128 layers, 16,384 features and 256 dimensions of
// a head.
constexpr int64_t kMostVocabulary = 1 << 24, kMostFeatures = 1 << 20, kMostLayers = 4096,
                  kMostHeads = 1 << 16, kMostHeadDim = 1 << 16, kMostPositions = 1 << 30;

// A field of a config.json, with messages that name file and field.
class Fields {
public:
    Fields(const std::string& path, const Json& json) : path_(path), json_(json) {}

    // Sizes are bounded, so that nothing is built that no machine could hold.
    int64_t integer(const char* name, int64_t most) const {
        if (!json_.contains(name) || json_[name].is_null())
            throw UserError("{}: field \"{}\" is missing", path_, name);
        return integer_or(name, 0, most);
    }
    int64_t integer_or(const char* name, int64_t fallback, int64_t most) const {
        if (!json_.contains(name) || json_[name].is_null()) return fallback;
        const Json& value = json_[name];
        // Of a number beyond int64_t, too, get<uint64_t> is what the file says.
        if (!value.is_number_integer() ||
            (!value.is_number_unsigned() && value.get<int64_t>() <= 0) ||
            value.get<uint64_t>() == 0 || value.get<uint64_t>() > static_cast<uint64_t>(most))
            throw UserError("{}: field \"{}\" is {}, but must be an integer from 1 to {}", path_,
                            name, value.dump(), most);
        return value.get<int64_t>();
    }
    double number(const char* name, double fallback) const {
        if (!json_.contains(name) || json_[name].is_null()) return fallback;
        if (!json_[name].is_number())
            throw UserError("{}: field \"{}\" is {}, but must be a number", path_, name,
                            json_[name].dump());
        return json_[name].get<double>();
    }
    bool boolean(const char* name, bool fallback) const {
        if (!json_.contains(name) || json_[name].is_null()) return fallback;
        if (!json_[name].is_boolean())
            throw UserError("{}: field \"{}\" is {}, but must be true or false", path_, name,
                            json_[name].dump());
        return json_[name].get<bool>();
    }
    std::string text(const char* name, const std::string& fallback) const {
        if (!json_.contains(name) || !json_[name].is_string()) return fallback;
        return json_[name].get<std::string>();
    }

private:
    const std::string& path_;
    const Json& json_;
};

void read_rope(const std::string& path, const Json& json, Shape& shape) {
    // transformers 5 writes "rope_parameters" for what version 4 called "rope_scaling" and
    // "rope_theta".
    Json rope = json.value("rope_parameters", Json());
    if (!rope.is_object()) rope = json.value("rope_scaling", Json());
    shape.config.rope_theta = Fields(path, json).number("rope_theta", 10000.0);
    if (!rope.is_object()) return;
    Fields fields(path, rope);
    shape.config.rope_theta = fields.number("rope_theta", shape.config.rope_theta);
    std::string type = fields.text("rope_type", fields.text("type", "default"));
    if (type == "default") return;
    if (type != "llama3")
        throw UserError(
            "{}: rope type \"{}\" is not supported here; supported are default and llama3 "
            "(an exported .onnx file carries any fixed frequencies)",
            path, type);
    shape.rope_scaling_factor = fields.number("factor", 8.0);
    shape.rope_low_freq_factor = fields.number("low_freq_factor", 1.0);
    shape.rope_high_freq_factor = fields.number("high_freq_factor", 4.0);
    shape.rope_original_positions =
        fields.integer_or("original_max_position_embeddings", 8192, kMostPositions);
}

}  // namespace

std::vector<std::string> shape_names() {
    std::vector<std::string> names;
    for (const Row& row : kRows) names.emplace_back(row.name);
    return names;
}

std::optional<Shape> find_shape(const std::string& name) {
    for (const Row& row : kRows)
        if (name == row.name) return shape_of(row);
    return std::nullopt;
}

Shape shape_from_config(const std::string& path) {
    const Json json = read_json(path);
    if (!json.is_object()) throw UserError("{} is not a JSON object", path);
    Fields fields(path, json);
    std::string type = fields.text("model_type", "llama");
    if (type != "llama" && type != "mistral" && type != "qwen2")
        throw UserError(
            "{}: model_type \"{}\" is not supported; supported are llama, mistral and qwen2", path,
            type);
    std::string activation = fields.text("hidden_act", "silu");
    if (activation != "silu")
        throw UserError("{}: hidden_act \"{}\" is not supported; supported is silu", path,
                        activation);
    Shape shape;
    shape.name = fields.text("_name_or_path", path);
    importer::ModelConfig& config = shape.config;
    config.model_type = type;
    config.vocab_size = fields.integer("vocab_size", kMostVocabulary);
    config.hidden_size = fields.integer("hidden_size", kMostFeatures);
    config.intermediate_size = fields.integer("intermediate_size", kMostFeatures);
    config.num_layers = fields.integer("num_hidden_layers", kMostLayers);
    config.num_heads = fields.integer("num_attention_heads", kMostHeads);
    config.num_kv_heads = fields.integer_or("num_key_value_heads", config.num_heads, kMostHeads);
    config.head_dim =
        fields.integer_or("head_dim", config.hidden_size / config.num_heads, kMostHeadDim);
    config.max_positions = fields.integer_or("max_position_embeddings", 0, kMostPositions);
    config.rms_norm_eps = fields.number("rms_norm_eps", 1e-6);
    config.tied_embeddings = fields.boolean("tie_word_embeddings", false);
    if (config.num_heads % config.num_kv_heads != 0)
        throw UserError("{}: num_attention_heads {} is no multiple of num_key_value_heads {}", path,
                        config.num_heads, config.num_kv_heads);
    if (type == "mistral")
        shape.sliding_window = fields.integer_or("sliding_window", 0, kMostPositions);
    bool bias = fields.boolean("attention_bias", false);
    shape.qkv_bias = bias || type == "qwen2";
    shape.o_bias = bias;
    shape.mlp_bias = fields.boolean("mlp_bias", false);
    std::string dtype = fields.text("torch_dtype", fields.text("dtype", "bfloat16"));
    shape.dtype = dtype == "float32"   ? DType::kF32
                  : dtype == "float16" ? DType::kF16
                                       : DType::kBF16;
    read_rope(path, json, shape);
    return shape;
}

}  // namespace cleave::models
