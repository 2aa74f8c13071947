// SPDX-License-Identifier: Apache-2.0
#include "models/gguf_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "importer/weights/gguf_blocks.h"
#include "importer/weights/weight_reader.h"
#include "models/config_fields.h"
#include "models/convert.h"
#include "models/llama_graph.h"
#include "models/shapes.h"
#include "runtime/base/errors.h"
#include "runtime/base/gguf.h"
#include "runtime/base/mapped_file.h"

namespace cleave::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// What llama.cpp calls an architecture, and the model_type of a config.json that means the same.
struct Architecture {
    const char* name;
    const char* model_type;
    bool neighbours;    // q and k are stored for a rotation of neighbouring features
    bool norms_offset;  // the 1 that the family adds to its norms' weights is in them
};
constexpr std::array kArchitectures{Architecture{"llama", "llama", true, false},
                                    Architecture{"qwen2", "qwen2", false, false},
                                    Architecture{"qwen3", "qwen3", false, false},
                                    Architecture{"gemma", "gemma", false, true},
                                    Architecture{"gemma2", "gemma2", false, true},
                                    Architecture{"gemma3", "gemma3_text", false, true},
                                    Architecture{"phi3", "phi3", false, false},
                                    Architecture{"granite", "granite", true, false},
                                    Architecture{"olmo2", "olmo2", false, false},
                                    Architecture{"arcee", "arcee", true, false},
                                    Architecture{"seed_oss", "seed_oss", false, false},
                                    Architecture{"smollm3", "smollm3", true, false},
                                    Architecture{"exaone4", "exaone4", false, false}};

const Architecture& architecture_of(const GgufFile& file) {
    const std::string name = file.architecture();
    std::vector<const char*> known;
    for (const Architecture& a : kArchitectures) {
        if (name == a.name) return a;
        known.push_back(a.name);
    }
    throw UserError("{}: architecture \"{}\" is not supported; supported are {}", file.path, name,
                    fmt::join(known, ", "));
}

std::vector<float> floats_of(const GgufFile& file, const GgufTensor& tensor) {
    if (tensor.type != GgufType::kF32)
        throw UserError("{}: tensor '{}' is of type {}; only F32 is supported there", file.path,
                        tensor.name, gguf_layout(tensor.type).name);
    const MappedFile map(file.path);
    const auto bytes = map.bytes().subspan(tensor.offset, tensor.length);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

// A config.json that says what the file's keys say.
class Config {
public:
    Config(const GgufFile& file, const Architecture& architecture)
        : file_(file), architecture_(architecture), fields_(file.path, file.metadata) {}

    Json build() {
        config_["model_type"] = architecture_.model_type;
        sizes();
        rotation();
        if (is("gemma2") || is("gemma3")) gemma();
        if (is("granite")) {
            number("embedding_multiplier", "embedding_scale");
            number("residual_multiplier", "residual_scale");
            number("logits_scaling", "logit_scale");
            number("attention_multiplier", "attention.scale");
        }
        if (is("phi3") || is("exaone4")) {
            config_["sliding_window"] = nullptr;
            integer("sliding_window", "attention.sliding_window", kMostPositions);
        }
        if (is("exaone4")) window_pattern();
        return std::move(config_);
    }

private:
    bool is(std::string_view name) const { return name == architecture_.name; }
    std::string key(const char* name) const {
        return fmt::format("{}.{}", architecture_.name, name);
    }
    bool has(const char* name) const { return fields_.has(key(name).c_str()); }
    void integer(const char* to, const char* from, int64_t most) {
        if (has(from)) config_[to] = fields_.integer(key(from).c_str(), most);
    }
    void number(const char* to, const char* from) {
        if (has(from)) config_[to] = fields_.number(key(from).c_str());
    }
    int64_t needed(const char* name, int64_t most) const {
        return fields_.integer(key(name).c_str(), most);
    }

    void sizes() {
        const GgufTensor* embedding = file_.find("token_embd.weight");
        if (!embedding || embedding->shape.size() != 2)
            throw UserError(
                "{}: the GGUF file has no matrix 'token_embd.weight'; it is no "
                "language model",
                file_.path);
        const int64_t hidden = needed("embedding_length", kMostFeatures);
        const int64_t heads = needed("attention.head_count", kMostHeads);
        config_["vocab_size"] = embedding->shape[0];
        config_["hidden_size"] = hidden;
        config_["num_attention_heads"] = heads;
        config_["num_hidden_layers"] = needed("block_count", kMostLayers);
        config_["intermediate_size"] = needed("feed_forward_length", kMostFeatures);
        config_["max_position_embeddings"] = needed("context_length", kMostPositions);
        integer("num_key_value_heads", "attention.head_count_kv", kMostHeads);
        config_["head_dim"] =
            fields_.integer_or(key("attention.key_length").c_str(), hidden / heads, kMostHeadDim);
        if (has("attention.value_length") &&
            needed("attention.value_length", kMostHeadDim) != config_["head_dim"])
            fields_.refuse(key("attention.value_length").c_str(), "that of attention.key_length");
        number("rms_norm_eps", "attention.layer_norm_rms_epsilon");
        config_["tie_word_embeddings"] = file_.find("output.weight") == nullptr;
        if (has("expert_count") && needed("expert_count", kMostFeatures) > 0)
            fields_.refuse(key("expert_count").c_str(), "0: experts are not supported");
    }

    void rotation() {
        config_["rope_theta"] = fields_.number_or(key("rope.freq_base").c_str(), 10000.0);
        const int64_t head_dim = config_["head_dim"];
        const int64_t turning =
            fields_.integer_or(key("rope.dimension_count").c_str(), head_dim, kMostHeadDim);
        if (turning != head_dim)
            config_["partial_rotary_factor"] =
                static_cast<double>(turning) / static_cast<double>(head_dim);
        const std::string type = fields_.text(key("rope.scaling.type").c_str(), "none");
        if (is("phi3") && file_.find("rope_factors_short.weight")) return long_rope(type);
        if (type == "none") return;
        if (type != "linear" && type != "yarn")
            fields_.refuse(key("rope.scaling.type").c_str(), "none, linear or yarn");
        config_["rope_scaling"] = {{"type", type},
                                   {"factor", fields_.number(key("rope.scaling.factor").c_str())}};
        if (type == "yarn")
            config_["rope_scaling"]["original_max_position_embeddings"] =
                needed("rope.scaling.original_context_length", kMostPositions);
    }

    // Divisors of each frequency up to the original context, and behind it.
    void long_rope(const std::string& type) {
        if (type != "none" && type != "longrope")
            fields_.refuse(key("rope.scaling.type").c_str(), "longrope beside rope_factors_short");
        config_["original_max_position_embeddings"] =
            needed("rope.scaling.original_context_length", kMostPositions);
        Json& rope = config_["rope_scaling"];
        rope["type"] = "longrope";
        rope["short_factor"] = factors("rope_factors_short.weight");
        rope["long_factor"] = factors("rope_factors_long.weight");
        if (has("rope.scaling.attn_factor"))
            rope["attention_factor"] = fields_.number(key("rope.scaling.attn_factor").c_str());
    }
    std::vector<float> factors(const char* name) const {
        if (const GgufTensor* tensor = file_.find(name)) return floats_of(file_, *tensor);
        throw UserError("{}: tensor '{}' is missing beside 'rope_factors_short.weight'", file_.path,
                        name);
    }

    void gemma() {
        // The largest of both families scale by the hidden size over the heads.
        const int64_t layers = config_["num_hidden_layers"], hidden = config_["hidden_size"];
        const bool largest = layers == (is("gemma2") ? 46 : 62);
        config_["query_pre_attn_scalar"] =
            largest ? hidden / config_["num_attention_heads"].get<int64_t>()
                    : config_["head_dim"].get<int64_t>();
        integer("sliding_window", "attention.sliding_window", kMostPositions);
        number("attn_logit_softcapping", "attn_logit_softcapping");
        number("final_logit_softcapping", "final_logit_softcapping");
        if (is("gemma3")) {
            number("rope_local_base_freq", "rope.freq_base_swa");
            window_pattern();
        }
    }

    // Which layers have windows: true for each of them, or every so many have none.
    void window_pattern() {
        const char* name = "attention.sliding_window_pattern";
        if (!has(name)) return;
        const Json& said = file_.metadata[key(name)];
        if (!said.is_array()) return integer("sliding_window_pattern", name, kMostLayers);
        Json types = Json::array();
        for (const Json& windowed : said) {
            if (!windowed.is_boolean()) fields_.refuse(key(name).c_str(), "true or false by layer");
            types.push_back(windowed.get<bool>() ? "sliding_attention" : "full_attention");
        }
        config_["layer_types"] = types;
    }

    const GgufFile& file_;
    const Architecture& architecture_;
    Fields fields_;
    Json config_ = Json::object();
};

// Llama 3.1's scaling comes as a divisor of each frequency.
void divide_frequencies(const GgufFile& file, Shape& shape) {
    const GgufTensor* divisors = file.find("rope_freqs.weight");
    if (!divisors) return;
    Frequencies rope{rope_frequencies(shape)};
    const std::vector<float> by = floats_of(file, *divisors);
    if (!shape.rope.empty() || by.size() != rope.values.size())
        throw UserError("{}: tensor 'rope_freqs.weight' has {} divisors for {} frequencies",
                        file.path, by.size(), rope.values.size());
    for (size_t i = 0; i < by.size(); ++i) {
        rope.values[i] /= by[i];
        if (!(by[i] > 0) || !std::isfinite(rope.values[i]))
            throw UserError("{}: tensor 'rope_freqs.weight' has a divisor that is not above 0",
                            file.path);
    }
    shape.rope = {std::move(rope)};
}

Shape shape_of(const GgufFile& file, const Architecture& architecture) {
    Shape shape = shape_from_json(Config(file, architecture).build(), file.path);
    const auto has = [&](const char* name) { return file.find(name) != nullptr; };
    shape.qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
    shape.o_bias = has("blk.0.attn_output.bias");
    shape.mlp_bias = has("blk.0.ffn_down.bias");
    if (architecture.norms_offset) shape.variation.norm_offset = 0;
    divide_frequencies(file, shape);
    return shape;
}

// Hugging Face's name of a tensor -> llama.cpp's.
class Names {
public:
    Names(const Shape& shape, const Architecture& architecture)
        : attention_norm_(shape.variation.norms_behind ||
                                  architecture.model_type == std::string_view("seed_oss")
                              ? "post_attention_norm"
                              : "ffn_norm") {}

    std::string of(const std::string& name) const {
        static const std::map<std::string, std::string> kWhole{
            {"model.embed_tokens.weight", "token_embd.weight"},
            {"model.norm.weight", "output_norm.weight"},
            {"lm_head.weight", "output.weight"}};
        if (const auto found = kWhole.find(name); found != kWhole.end()) return found->second;
        constexpr std::string_view kLayers = "model.layers.";
        const size_t dot = name.find('.', kLayers.size()), last = name.rfind('.');
        CLEAVE_CHECK(name.starts_with(kLayers) && dot < last) << name << ": no tensor of a layer";
        const std::string module = name.substr(dot + 1, last - dot - 1);
        return fmt::format("blk.{}.{}{}", name.substr(kLayers.size(), dot - kLayers.size()),
                           in_layer(module), name.substr(last));
    }

private:
    std::string in_layer(const std::string& module) const {
        static const std::map<std::string, std::string> kModules{
            {"input_layernorm", "attn_norm"},
            {"self_attn.q_proj", "attn_q"},
            {"self_attn.k_proj", "attn_k"},
            {"self_attn.v_proj", "attn_v"},
            {"self_attn.qkv_proj", "attn_qkv"},
            {"self_attn.o_proj", "attn_output"},
            {"self_attn.q_norm", "attn_q_norm"},
            {"self_attn.k_norm", "attn_k_norm"},
            {"pre_feedforward_layernorm", "ffn_norm"},
            {"post_feedforward_layernorm", "post_ffw_norm"},
            {"mlp.gate_proj", "ffn_gate"},
            {"mlp.up_proj", "ffn_up"},
            {"mlp.gate_up_proj", "ffn_up"},
            {"mlp.down_proj", "ffn_down"}};
        if (module == "post_attention_layernorm") return attention_norm_;
        const auto found = kModules.find(module);
        CLEAVE_CHECK(found != kModules.end()) << module << ": no module of a layer";
        return found->second;
    }

    std::string attention_norm_;
};

DType dense_type(GgufType type) {
    return type == GgufType::kF16    ? DType::kF16
           : type == GgufType::kBF16 ? DType::kBF16
                                     : DType::kF32;
}

// The weight views the tensor as it lies.
void view(importer::Weight& weight, const GgufFile& file, const GgufTensor& tensor) {
    if (tensor.shape != weight.source_shape)
        throw UserError("{}: tensor '{}' is [{}], but the model needs [{}]", file.path, tensor.name,
                        fmt::join(tensor.shape, ", "), fmt::join(weight.source_shape, ", "));
    CLEAVE_CHECK(!weight.transposed) << weight.name << ": is stored transposed";
    weight.name = weight.name.replace(weight.name.find(weight.initializers[0]),
                                      weight.initializers[0].size(), tensor.name);
    weight.initializers = {tensor.name};
    weight.data = {importer::FileId(0), {}, tensor.offset, tensor.length};
    weight.dtype = dense_type(tensor.type);
    if (gguf_layout(tensor.type).elements == 1) return;
    weight.gguf = tensor.type;
    const auto quantized = importer::gguf_as_quantized(tensor.type);
    if (!quantized) return;
    weight.packing = importer::Packing::kMatMulNBits;
    weight.dtype = quantized->dtype;
    weight.quantization.block = gguf_layout(tensor.type).elements;
    weight.quantization.scale_dtype = DType::kF16;
    if (quantized->zero_points) {
        weight.quantization.zero_points = weight.data;  // within its blocks
        weight.quantization.zero_point_dtype = DType::kF32;
    }
}

}  // namespace

importer::Graph import_gguf(const std::string& path) {
    const GgufFile file = read_gguf(path);
    const Architecture& architecture = architecture_of(file);
    const Shape shape = shape_of(file, architecture);
    importer::Graph graph = graph_of_tensors(shape, DType::kF32);
    graph.name = fs::path(path).stem().string();
    graph.config.model_type = shape.config.model_type;
    // A rotary table that is halved for longer sequences has fewer than the file says.
    int64_t& positions = graph.config.max_positions;
    positions = positions > 0 ? std::min(positions, shape.config.max_positions)
                              : shape.config.max_positions;
    graph.notes.clear();
    graph.path = path;
    graph.exporter = "GGUF, architecture " + file.architecture();
    graph.files = {{path, file.size, true}};
    const Names names(shape, architecture);
    std::set<std::string> used{"rope_freqs.weight"};
    if (shape.config.model_type == "phi3")
        used.insert({"rope_factors_short.weight", "rope_factors_long.weight"});
    for (importer::Weight& weight : graph.weights) {
        if (weight.data.blob.valid()) continue;  // constants of the graph itself
        CLEAVE_CHECK(weight.initializers.size() == 1) << weight.name << ": of several tensors";
        const std::string name = names.of(weight.initializers[0]);
        const GgufTensor* tensor = file.find(name);
        if (!tensor)
            throw UserError(
                "{}: tensor '{}' is missing, which a model of architecture {} has; "
                "download the file again",
                path, name, architecture.name);
        view(weight, file, *tensor);
        used.insert(name);
    }
    for (const GgufTensor& tensor : file.tensors)
        if (!used.contains(tensor.name))
            throw UserError(
                "{}: tensor '{}' [{}] is none that a model of architecture {} has here; "
                "such a model is not supported",
                path, tensor.name, fmt::join(tensor.shape, ", "), architecture.name);
    if (architecture.neighbours)
        for (importer::Op& op : graph.ops)
            if (op.kind == importer::OpKind::kRope)
                std::get<importer::RopeAttrs>(op.attrs).interleaved = true;
    return graph;
}

}  // namespace cleave::models
