// SPDX-License-Identifier: Apache-2.0
// A config.json of Hugging Face becomes a Shape: fields that all families share, then those of
// each. Defaults are those of transformers 5.
#include <array>
#include <cmath>
#include <functional>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "models/config_quantization.h"
#include "models/config_rope.h"
#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"

namespace cleave::models {
namespace {

using importer::Activation;

// What changes no logit: how the model was trained, is loaded, tokenises and stops.
const std::set<std::string>& ignored_fields() {
    static const std::set<std::string> kIgnored{
        "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "architectures",
        "attention_dropout", "attn_implementation", "auto_map", "begin_suppress_tokens",
        "bos_token_id", "cache_implementation", "chunk_size_feed_forward", "classifier_dropout",
        "decoder_start_token_id", "dtype", "embd_pdrop", "eod_token_id", "eos_token_id",
        "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing",
        "hidden_dropout", "id2label", "initializer_range", "is_decoder", "is_llama_config",
        "label2id", "model_type", "name_or_path", "num_labels", "output_attentions",
        "output_hidden_states", "pad_token_id", "prefix", "pretraining_tp", "problem_type",
        "pruned_heads", "resid_pdrop", "residual_dropout", "return_dict", "return_dict_in_generate",
        "sep_token_id", "suppress_tokens", "task_specific_params", "tf_legacy_loss",
        "tokenizer_class", "torch_dtype", "torchscript", "transformers.js_config",
        "transformers_version", "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
        // Of generation, which older files keep here.
        "bad_words_ids", "diversity_penalty", "do_sample", "early_stopping",
        "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "length_penalty",
        "max_length", "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
        "num_return_sequences", "output_scores", "remove_invalid_values", "repetition_penalty",
        "temperature", "top_k", "top_p", "typical_p"};
    return kIgnored;
}

Activation activation_of(const Fields& fields, const char* name, const std::string& fallback) {
    const std::string said = fields.text(name, fallback);
    if (said == "silu" || said == "swish") return Activation::kSilu;
    if (said == "gelu_pytorch_tanh" || said == "gelu_new") return Activation::kGeluTanh;
    if (said == "gelu") return Activation::kGeluErf;
    if (said == "relu") return Activation::kRelu;
    if (said == "relu2") return Activation::kRelu2;
    throw UserError(
        "{}: {} \"{}\" is not supported; supported are silu, gelu_pytorch_tanh, gelu, relu and "
        "relu2",
        fields.path(), name, said);
}

// "sliding_attention" or "full_attention" for each layer; where the file has no list, `windowed`
// says it of a layer's index.
void read_layer_types(const Fields& fields, Shape& shape, int64_t window,
                      const std::function<bool(int64_t)>& windowed) {
    const auto count = static_cast<size_t>(shape.config.num_layers);
    shape.layers.assign(count, LayerKind{});
    std::vector<std::string> types;
    if (fields.has("layer_types")) types = fields.texts("layer_types", count);
    for (size_t i = 0; i < count; ++i) {
        if (!types.empty() && types[i] != "sliding_attention" && types[i] != "full_attention")
            throw UserError(
                "{}: layer_types has \"{}\", which is not supported; supported are "
                "full_attention and sliding_attention",
                fields.path(), types[i]);
        const bool has_window =
            types.empty() ? windowed(static_cast<int64_t>(i)) : types[i] == "sliding_attention";
        if (has_window && window == 0)
            throw UserError("{}: a layer has a window, but field \"sliding_window\" is missing",
                            fields.path());
        if (has_window) shape.layers[i].window = window;
    }
}

int64_t window_of(const Fields& fields, int64_t fallback) {
    return fields.integer_or("sliding_window", fallback, kMostPositions);
}

// Qwen's: windows from a layer on, if at all.
void read_qwen_windows(const Fields& fields, Shape& shape) {
    const int64_t window =
        fields.boolean("use_sliding_window", false) ? window_of(fields, 4096) : 0;
    window_of(fields, 0);
    const int64_t first = fields.integer_or("max_window_layers", 28, kMostLayers);
    read_layer_types(fields, shape, window,
                     [&](int64_t layer) { return window > 0 && layer >= first; });
}

// Layers that are all alike need no list.
void drop_equal_layers(Shape& shape) {
    for (const LayerKind& layer : shape.layers)
        if (layer.rope != 0 || layer.window != shape.layers[0].window) return;
    if (shape.layers.empty()) return;
    shape.sliding_window = shape.layers[0].window;
    shape.layers.clear();
}

void set_biases(Shape& shape, bool bias) { shape.qkv_bias = shape.o_bias = bias; }

void llama(const Fields& fields, Shape& shape) {
    set_biases(shape, fields.boolean("attention_bias", false));
    shape.mlp_bias = fields.boolean("mlp_bias", false);
}

void mistral(const Fields& fields, Shape& shape) {
    shape.sliding_window = window_of(fields, fields.stated("sliding_window") ? 0 : 4096);
}

void ministral3(const Fields& fields, Shape& shape) { shape.sliding_window = window_of(fields, 0); }

void helium(const Fields& fields, Shape& shape) {
    llama(fields, shape);
    shape.variation.rotation = Rotation::kNeighboursSliced;
}

void qwen2(const Fields& fields, Shape& shape) {
    shape.qkv_bias = true;
    if (fields.boolean("use_mrope", false)) fields.refuse("use_mrope", "false");
    read_qwen_windows(fields, shape);
}

void qwen3(const Fields& fields, Shape& shape) {
    set_biases(shape, fields.boolean("attention_bias", false));
    shape.variation.qk_norm = true;
    read_qwen_windows(fields, shape);
}

void phi3(const Fields& fields, Shape& shape) {
    set_biases(shape, fields.boolean("attention_bias", false));
    shape.variation.fused_projections = true;
    shape.sliding_window = window_of(fields, 0);
}

void gemma_common(const Fields& fields, Shape& shape, const char* activation) {
    Variation& v = shape.variation;
    v.embedding_factor = std::sqrt(static_cast<double>(shape.config.hidden_size));
    v.norm_offset = 1;
    v.activation = activation_of(fields, activation, "gelu_pytorch_tanh");
    set_biases(shape, fields.boolean("attention_bias", false));
    if (fields.boolean("use_bidirectional_attention", false))
        fields.refuse("use_bidirectional_attention", "false");
}

void gemma(const Fields& fields, Shape& shape) {
    if (fields.has("hidden_activation")) {
        fields.text("hidden_act", "");
        gemma_common(fields, shape, "hidden_activation");
        return;
    }
    // The published files of the first Gemma say "gelu" and mean its tanh form, which is what
    // transformers before 5 made of it.
    if (fields.text("hidden_act", "") == "gelu")
        fields.refuse("hidden_act",
                      "\"gelu_pytorch_tanh\": of a Gemma, versions of transformers differ in what "
                      "\"gelu\" means");
    gemma_common(fields, shape, "hidden_act");
}

void gemma2_common(const Fields& fields, Shape& shape, double scores_cap, double logits_cap,
                   int64_t pattern) {
    gemma_common(fields, shape, "hidden_activation");
    Variation& v = shape.variation;
    fields.text("hidden_act", "");
    v.norms_behind = true;
    const double scalar = fields.number_or("query_pre_attn_scalar", 256);
    if (!(scalar > 0)) fields.refuse("query_pre_attn_scalar", "above 0");
    v.attention_scale = 1.0 / std::sqrt(scalar);
    const auto cap = [&](const char* name, double fallback) {
        const double said = fields.number_or(name, fields.stated(name) ? 0 : fallback);
        if (said < 0 || !std::isfinite(said)) fields.refuse(name, "0 or above");
        return said;
    };
    v.score_softcap = cap("attn_logit_softcapping", scores_cap);
    v.logits_softcap = cap("final_logit_softcapping", logits_cap);
    read_layer_types(fields, shape, window_of(fields, fields.stated("sliding_window") ? 0 : 4096),
                     [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

void gemma2(const Fields& fields, Shape& shape) { gemma2_common(fields, shape, 50, 30, 2); }

void gemma3(const Fields& fields, Shape& shape) {
    shape.variation.qk_norm = true;
    gemma2_common(fields, shape, 0, 0,
                  fields.integer_or("sliding_window_pattern",
                                    fields.integer_or("_sliding_window_pattern", 6, kMostLayers),
                                    kMostLayers));
}

void olmo2(const Fields& fields, Shape& shape) {
    set_biases(shape, fields.boolean("attention_bias", false));
    shape.variation.norms_before = false;
    shape.variation.norms_behind = true;
    shape.variation.joint_qk_norm = true;
}

void granite(const Fields& fields, Shape& shape) {
    llama(fields, shape);
    Variation& v = shape.variation;
    v.embedding_factor = fields.number_or("embedding_multiplier", 1);
    v.logits_divisor = fields.number_or("logits_scaling", 1);
    v.residual_factor = fields.number_or("residual_multiplier", 1);
    v.attention_scale = fields.number_or("attention_multiplier", 1);
    if (!(v.attention_scale > 0)) fields.refuse("attention_multiplier", "above 0");
    if (v.logits_divisor == 0) fields.refuse("logits_scaling", "another number than 0");
}

void smollm3(const Fields& fields, Shape& shape) {
    llama(fields, shape);
    const int64_t interval = fields.integer_or("no_rope_layer_interval", 4, kMostLayers);
    const int64_t window = fields.boolean("use_sliding_window", false) ? window_of(fields, 0) : 0;
    window_of(fields, 0);
    std::vector<double> rotated;
    if (fields.has("no_rope_layers"))
        rotated = fields.numbers("no_rope_layers", static_cast<size_t>(shape.config.num_layers));
    else
        for (int64_t i = 0; i < shape.config.num_layers; ++i)
            rotated.push_back((i + 1) % interval != 0 ? 1 : 0);
    read_layer_types(fields, shape, window, [&](int64_t layer) {
        return window > 0 && rotated[static_cast<size_t>(layer)] == 0;
    });
    for (size_t i = 0; i < rotated.size(); ++i)
        if (rotated[i] == 0) shape.layers[i].rope = -1;
    if (window == 0)
        for (LayerKind& layer : shape.layers) layer.window = 0;
}

void seed_oss(const Fields& fields, Shape& shape) {
    shape.qkv_bias = fields.boolean("attention_bias", true);
    shape.o_bias = fields.boolean("attention_out_bias", false);
    shape.mlp_bias = fields.boolean("mlp_bias", false);
}

void arcee(const Fields& fields, Shape& shape) {
    llama(fields, shape);
    shape.variation.gated = false;
}

// Layers that see the whole context beside windows are not rotated.
void exaone4(const Fields& fields, Shape& shape) {
    shape.variation.norms_before = false;
    shape.variation.norms_behind = true;
    shape.variation.qk_norm = true;
    const int64_t window = window_of(fields, fields.stated("sliding_window") ? 0 : 4096);
    int64_t pattern = 4;
    std::string letters;  // "LLLG": three of local attention, one of global
    if (fields.has("sliding_window_pattern") && !fields.has("layer_types")) {
        if (fields.is_text("sliding_window_pattern"))
            letters = fields.text("sliding_window_pattern", "");
        else
            pattern = fields.integer_or("sliding_window_pattern", 4, kMostLayers);
    }
    if (letters.find_first_not_of("LG") != std::string::npos)
        fields.refuse("sliding_window_pattern", "a number or letters L and G");
    read_layer_types(fields, shape, window, [&](int64_t layer) {
        const auto at = static_cast<size_t>(layer);
        const bool is_local =
            letters.empty() ? (layer + 1) % pattern != 0 : letters[at % letters.size()] == 'L';
        return window > 0 && is_local;
    });
    for (LayerKind& layer : shape.layers)
        if (window > 0 && layer.window == 0) layer.rope = -1;
}

struct Family {
    const char* type;
    void (*read)(const Fields&, Shape&);
    double theta;      // where the file has none
    int64_t head_dim;  // likewise; 0: hidden_size / num_attention_heads
    double epsilon;    // likewise
    bool tied;         // likewise
};

constexpr std::array kFamilies{
    Family{"llama", llama, 1e4, 0, 1e-6, false},
    Family{"mistral", mistral, 1e4, 0, 1e-6, false},
    Family{"ministral3", ministral3, 1e6, 128, 1e-5, false},
    Family{"helium", helium, 1e5, 128, 1e-8, false},
    Family{"qwen2", qwen2, 1e4, 0, 1e-6, false},
    Family{"qwen3", qwen3, 1e4, 128, 1e-6, false},
    Family{"phi3", phi3, 1e4, 0, 1e-5, false},
    Family{"gemma", gemma, 1e4, 256, 1e-6, true},
    Family{"gemma2", gemma2, 1e4, 256, 1e-6, true},
    Family{"gemma3_text", gemma3, 1e6, 256, 1e-6, true},
    Family{"olmo2", olmo2, 1e4, 0, 1e-5, false},
    Family{"granite", granite, 1e4, 0, 1e-6, false},
    Family{"arcee", arcee, 1e4, 0, 1e-5, false},
    Family{"exaone4", exaone4, 1e4, 0, 1e-5, false},
    Family{"seed_oss", seed_oss, 1e4, 128, 1e-6, false},
    Family{"smollm3", smollm3, 2e6, 0, 1e-6, true},
};

const Family& family_of(const std::string& path, const std::string& type) {
    std::vector<const char*> known;
    for (const Family& family : kFamilies) {
        if (type == family.type) return family;
        known.push_back(family.type);
    }
    throw UserError("{}: model_type \"{}\" is not supported; supported are {}", path, type,
                    fmt::join(known, ", "));
}

void read_sizes(const Fields& fields, const Family& family, importer::ModelConfig& config) {
    config.vocab_size = fields.integer("vocab_size", kMostVocabulary);
    config.hidden_size = fields.integer("hidden_size", kMostFeatures);
    config.intermediate_size = fields.integer("intermediate_size", kMostFeatures);
    config.num_layers = fields.integer("num_hidden_layers", kMostLayers);
    config.num_heads = fields.integer("num_attention_heads", kMostHeads);
    config.num_kv_heads = fields.integer_or("num_key_value_heads", config.num_heads, kMostHeads);
    int64_t head_dim = family.head_dim;
    if (head_dim == 0) head_dim = config.hidden_size / config.num_heads;
    config.head_dim = fields.integer_or("head_dim", head_dim, kMostHeadDim);
    config.max_positions = fields.integer_or("max_position_embeddings", 0, kMostPositions);
    config.rms_norm_eps = fields.number_or("rms_norm_eps", family.epsilon);
    if (!(config.rms_norm_eps >= 0)) fields.refuse("rms_norm_eps", "0 or above");
    config.tied_embeddings = fields.boolean("tie_word_embeddings", family.tied);
    if (config.head_dim == 0 || config.head_dim % 2 != 0)
        throw UserError(
            "{}: heads of {} features cannot be rotated; they must be of an even "
            "number (hidden_size / num_attention_heads, or head_dim)",
            fields.path(), config.head_dim);
    if (config.num_heads % config.num_kv_heads != 0)
        throw UserError("{}: num_attention_heads {} is no multiple of num_key_value_heads {}",
                        fields.path(), config.num_heads, config.num_kv_heads);
}

// Models of pictures and texts have the texts' part in an object, without what is as in
// transformers' Gemma3TextConfig.
nlohmann::json text_part(const nlohmann::json& json, const std::string& path) {
    const bool has_pictures = json.contains("model_type") && json["model_type"] == "gemma3";
    if (!has_pictures) return json;
    if (!json.contains("text_config") || !json["text_config"].is_object())
        throw UserError("{}: model_type \"gemma3\" without an object \"text_config\"", path);
    nlohmann::json text{{"model_type", "gemma3_text"},
                        {"vocab_size", 262208},
                        {"num_attention_heads", 8},
                        {"num_key_value_heads", 4},
                        {"max_position_embeddings", 131072}};
    text.update(json["text_config"]);
    return text;
}

}  // namespace

Shape shape_from_config(const std::string& path) { return shape_from_json(read_json(path), path); }

Shape shape_from_json(const nlohmann::json& json, const std::string& path) {
    if (!json.is_object()) throw UserError("{} is not a JSON object", path);
    const nlohmann::json of_texts = text_part(json, path);
    const Fields fields(path, of_texts);
    const Family& family = family_of(path, fields.text("model_type", "llama"));
    Shape shape;
    shape.name = fields.text("_name_or_path", path);
    shape.config.model_type = family.type;
    shape.config.rope_theta = family.theta;
    read_sizes(fields, family, shape.config);
    family.read(fields, shape);
    if (fields.has("quantization_config"))
        shape.packed = read_quantization(fields.object("quantization_config"));
    if (shape.variation.norm_offset == 0)
        shape.variation.activation =
            activation_of(fields, "hidden_act", shape.variation.gated ? "silu" : "relu2");
    if (fields.boolean("rope_interleaved", false)) fields.refuse("rope_interleaved", "false");
    if (fields.boolean("is_encoder_decoder", false)) fields.refuse("is_encoder_decoder", "false");
    const std::string dtype = fields.text("torch_dtype", fields.text("dtype", "bfloat16"));
    shape.dtype = dtype == "float32"   ? DType::kF32
                  : dtype == "float16" ? DType::kF16
                                       : DType::kBF16;
    if (family.read == gemma3)
        read_two_ropes(fields, shape);
    else
        read_rope(fields, shape);
    fields.check_all_known(ignored_fields());
    drop_equal_layers(shape);
    return shape;
}

}  // namespace cleave::models
