// SPDX-License-Identifier: Apache-2.0
#include "models/config_named.h"

namespace cleave::models {
namespace {

struct Named {
    std::string_view name, config;
};

// Sources: the published config.json of mistralai/Mistral-7B-Instruct-v0.3 and
// Mistral-Small-24B-Instruct-2501; Qwen/Qwen2.5-*-Instruct and Qwen3-*;
// microsoft/Phi-3-mini-4k-instruct and phi-4; google/gemma-2-*-it and, of the text model,
// gemma-3-*-it.
constexpr Named kNamed[] = {
    {"mistral-7b", R"({"model_type": "mistral", "vocab_size": 32768, "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
      "rms_norm_eps": 1e-5, "sliding_window": null})"},
    {"mistral-small-24b", R"({"model_type": "mistral", "vocab_size": 131072, "hidden_size": 5120,
      "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768,
      "rope_theta": 100000000.0, "rms_norm_eps": 1e-5, "sliding_window": null})"},
    {"qwen2.5-7b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
      "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
      "num_key_value_heads": 4, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
      "rms_norm_eps": 1e-6})"},
    {"qwen2.5-14b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120,
      "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
      "num_key_value_heads": 8, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
      "rms_norm_eps": 1e-6})"},
    {"qwen2.5-32b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120,
      "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
      "num_key_value_heads": 8, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
      "rms_norm_eps": 1e-6})"},
    {"qwen2.5-72b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 8192,
      "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
      "rms_norm_eps": 1e-6})"},
    {"qwen3-4b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2560,
      "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"qwen3-8b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 4096,
      "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0, "rms_norm_eps": 1e-6})"},
    {"qwen3-32b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 5120,
      "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0, "rms_norm_eps": 1e-6})"},
    {"phi-3-mini", R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072,
      "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 32, "max_position_embeddings": 4096, "rope_theta": 10000.0,
      "sliding_window": 2047})"},
    {"phi-4", R"({"model_type": "phi3", "vocab_size": 100352, "hidden_size": 5120,
      "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 10, "max_position_embeddings": 16384, "rope_theta": 250000.0,
      "sliding_window": null})"},
    {"gemma-2-2b", R"({"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 2304,
      "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
      "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
      "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256,
      "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
      "hidden_activation": "gelu_pytorch_tanh"})"},
    {"gemma-2-9b", R"({"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 3584,
      "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 256, "max_position_embeddings": 8192,
      "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256,
      "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
      "hidden_activation": "gelu_pytorch_tanh"})"},
    {"gemma-2-27b", R"({"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 4608,
      "intermediate_size": 36864, "num_hidden_layers": 46, "num_attention_heads": 32,
      "num_key_value_heads": 16, "head_dim": 128, "max_position_embeddings": 8192,
      "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 144,
      "sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
      "hidden_activation": "gelu_pytorch_tanh"})"},
    {"gemma-3-1b", R"({"model_type": "gemma3_text", "vocab_size": 262144, "hidden_size": 1152,
      "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4,
      "num_key_value_heads": 1, "head_dim": 256, "max_position_embeddings": 32768,
      "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rms_norm_eps": 1e-6,
      "query_pre_attn_scalar": 256, "sliding_window": 512, "sliding_window_pattern": 6,
      "hidden_activation": "gelu_pytorch_tanh"})"},
    {"gemma-3-4b", R"({"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 2560,
      "intermediate_size": 10240, "num_hidden_layers": 34, "num_attention_heads": 8,
      "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
      "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rms_norm_eps": 1e-6,
      "query_pre_attn_scalar": 256, "sliding_window": 1024, "sliding_window_pattern": 6,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "hidden_activation": "gelu_pytorch_tanh"})"},
    {"gemma-3-12b", R"({"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 3840,
      "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 256, "max_position_embeddings": 131072,
      "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rms_norm_eps": 1e-6,
      "query_pre_attn_scalar": 256, "sliding_window": 1024, "sliding_window_pattern": 6,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "hidden_activation": "gelu_pytorch_tanh"})"},
    {"gemma-3-27b", R"({"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 5376,
      "intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32,
      "num_key_value_heads": 16, "head_dim": 128, "max_position_embeddings": 131072,
      "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rms_norm_eps": 1e-6,
      "query_pre_attn_scalar": 168, "sliding_window": 1024, "sliding_window_pattern": 6,
      "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "hidden_activation": "gelu_pytorch_tanh"})"},
};

}  // namespace

std::string_view named_config(std::string_view name) {
    for (const Named& named : kNamed)
        if (named.name == name) return named.config;
    return {};
}

std::vector<std::string> config_names() {
    std::vector<std::string> names;
    for (const Named& named : kNamed) names.emplace_back(named.name);
    return names;
}

}  // namespace cleave::models
