// SPDX-License-Identifier: Apache-2.0
#include "models/llama_graph.h"

#include <cmath>
#include <numbers>

#include "runtime/base/errors.h"

namespace cleave::models {
namespace {

using namespace cleave::importer;

// Appends operators of one Llama to a Graph; values and weights get the names that exporters give
// them.
class Builder {
public:
    Builder(const Shape& shape, DType weight_dtype) : shape_(shape), dtype_(weight_dtype) {}

    Graph build();

private:
    ValueId value(const std::string& name, int64_t features,
                  ValueKind kind = ValueKind::kActivation, const char* rows = "num_tokens");
    WeightId weight(const std::string& name, std::vector<int64_t> shape);
    ValueId op(OpKind kind, const std::string& name, OpAttrs attrs, std::vector<ValueId> inputs,
               std::vector<WeightId> weights, ValueId output);
    ValueId linear(const std::string& name, ValueId x, int64_t in, int64_t out, bool bias);
    ValueId norm(const std::string& name, ValueId x);
    ValueId attention(const std::string& prefix, ValueId x);
    ValueId mlp(const std::string& prefix, ValueId x);

    const Shape& shape_;
    const ModelConfig& config_ = shape_.config;
    DType dtype_;
    int layer_ = -1;
    RopeTableId rope_{0};
    Graph graph_;
};

ValueId Builder::value(const std::string& name, int64_t features, ValueKind kind,
                       const char* rows) {
    Value v{name, kind, {Dim(std::string(rows)), Dim(features)}, DType::kF32};
    graph_.values.push_back(std::move(v));
    return ValueId(graph_.values.size() - 1);
}

WeightId Builder::weight(const std::string& name, std::vector<int64_t> shape) {
    Weight w;
    w.name = name;
    w.dtype = dtype_;
    w.source_shape = shape;
    w.rows = {0, shape[0]};
    w.columns = {0, shape.size() > 1 ? shape[1] : 1};
    w.shape = std::move(shape);
    w.initializers = {name};
    graph_.weights.push_back(std::move(w));
    return WeightId(graph_.weights.size() - 1);
}

ValueId Builder::op(OpKind kind, const std::string& name, OpAttrs attrs,
                    std::vector<ValueId> inputs, std::vector<WeightId> weights, ValueId output) {
    Op o;
    o.kind = kind;
    o.name = name;
    o.layer = layer_;
    o.attrs = std::move(attrs);
    o.inputs = std::move(inputs);
    o.weights = std::move(weights);
    o.outputs = {output};
    graph_.ops.push_back(std::move(o));
    return output;
}

ValueId Builder::linear(const std::string& name, ValueId x, int64_t in, int64_t out, bool bias) {
    std::vector<WeightId> weights{weight("model." + name + ".weight", {out, in})};
    if (bias) weights.push_back(weight("model." + name + ".bias", {out}));
    return op(OpKind::kLinear, name, LinearAttrs{bias}, {x}, std::move(weights), value(name, out));
}

ValueId Builder::norm(const std::string& name, ValueId x) {
    return op(OpKind::kRmsNorm, name, RmsNormAttrs{config_.rms_norm_eps, 0.0, config_.hidden_size},
              {x}, {weight("model." + name + ".weight", {config_.hidden_size})},
              value(name, config_.hidden_size));
}

ValueId Builder::attention(const std::string& prefix, ValueId x) {
    const int64_t q_features = config_.num_heads * config_.head_dim;
    const int64_t kv_features = config_.num_kv_heads * config_.head_dim;
    ValueId normed = norm(prefix + "input_norm", x);
    ValueId q = linear(prefix + "q_proj", normed, config_.hidden_size, q_features, shape_.qkv_bias);
    ValueId k =
        linear(prefix + "k_proj", normed, config_.hidden_size, kv_features, shape_.qkv_bias);
    ValueId v =
        linear(prefix + "v_proj", normed, config_.hidden_size, kv_features, shape_.qkv_bias);
    RopeAttrs rope{config_.num_heads, config_.head_dim, config_.head_dim, false, rope_};
    q = op(OpKind::kRope, prefix + "q_rope", rope, {q}, {}, value(prefix + "q_rope", q_features));
    rope.num_heads = config_.num_kv_heads;
    k = op(OpKind::kRope, prefix + "k_rope", rope, {k}, {}, value(prefix + "k_rope", kv_features));
    graph_.values.push_back({prefix + "kv",
                             ValueKind::kKvState,
                             {Dim(std::string("num_sequences")), Dim(std::string("context")),
                              Dim(2), Dim(config_.num_kv_heads), Dim(config_.head_dim)},
                             DType::kF32});
    ValueId state(graph_.values.size() - 1);
    op(OpKind::kKvAppend, prefix + "kv_append",
       KvAppendAttrs{config_.num_kv_heads, config_.head_dim, config_.head_dim}, {k, v}, {}, state);
    AttentionAttrs attrs{config_.num_heads, config_.num_kv_heads, config_.head_dim,
                         config_.head_dim};
    attrs.scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
    attrs.window = shape_.sliding_window;
    ValueId y = op(OpKind::kAttention, prefix + "attention", attrs, {q, state}, {},
                   value(prefix + "attention", q_features));
    ValueId o = linear(prefix + "o_proj", y, q_features, config_.hidden_size, shape_.o_bias);
    std::string name = prefix + "attention_residual";
    return op(OpKind::kAdd, name, AddAttrs{}, {x, o}, {}, value(name, config_.hidden_size));
}

ValueId Builder::mlp(const std::string& prefix, ValueId x) {
    const int64_t hidden = config_.hidden_size, intermediate = config_.intermediate_size;
    ValueId normed = norm(prefix + "post_norm", x);
    ValueId gate = linear(prefix + "gate_proj", normed, hidden, intermediate, shape_.mlp_bias);
    ValueId up = linear(prefix + "up_proj", normed, hidden, intermediate, shape_.mlp_bias);
    std::string act = prefix + "gated_activation";
    ValueId a = op(OpKind::kGatedActivation, act, GatedActivationAttrs{}, {gate, up}, {},
                   value(act, intermediate));
    ValueId down = linear(prefix + "down_proj", a, intermediate, hidden, shape_.mlp_bias);
    std::string name = prefix + "mlp_residual";
    return op(OpKind::kAdd, name, AddAttrs{}, {x, down}, {}, value(name, hidden));
}

Graph Builder::build() {
    graph_.name = shape_.name;
    graph_.config = config_;
    graph_.dtype = dtype_;
    graph_.interface = {true, true, true, false};
    RopeTable table;
    table.name = "rope";
    table.frequencies = rope_frequencies(shape_);
    table.rotary_dim = config_.head_dim;
    graph_.rope_tables.push_back(std::move(table));

    graph_.values.push_back(
        {"token_ids", ValueKind::kTokenIds, {Dim(std::string("num_tokens"))}, DType::kInt32});
    ValueId ids{0};
    graph_.inputs = {ids};
    WeightId embedding =
        weight("model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size});
    ValueId x = op(OpKind::kEmbedding, "embedding", EmbeddingAttrs{}, {ids}, {embedding},
                   value("embedding", config_.hidden_size));
    for (layer_ = 0; layer_ < config_.num_layers; ++layer_) {
        std::string prefix = fmt::format("layers.{}.", layer_);
        x = mlp(prefix, attention(prefix, x));
    }
    ValueId rows =
        value("select_tokens", config_.hidden_size, ValueKind::kActivation, "num_outputs");
    x = op(OpKind::kSelectTokens, "select_tokens", SelectTokensAttrs{}, {x}, {}, rows);
    x = norm("final_norm", x);
    graph_.values.back().shape[0] = Dim(std::string("num_outputs"));
    WeightId head = config_.tied_embeddings
                        ? embedding
                        : weight("lm_head.weight", {config_.vocab_size, config_.hidden_size});
    ValueId logits = value("logits", config_.vocab_size, ValueKind::kLogits, "num_outputs");
    op(OpKind::kLinear, "lm_head", LinearAttrs{}, {x}, {head}, logits);
    graph_.outputs = {logits};
    check_graph(graph_);
    return std::move(graph_);
}

}  // namespace

std::vector<float> rope_frequencies(const Shape& shape) {
    // "Llama 3.1" scaling, as in transformers' modeling_rope_utils: wavelengths above original /
    // low are divided by the factor, those below original / high are kept, and those between are
    // interpolated.
    const int64_t dim =
        shape.variation.rotary_dim > 0 ? shape.variation.rotary_dim : shape.config.head_dim;
    const int64_t half = dim / 2;
    std::vector<float> frequencies(static_cast<size_t>(half));
    const auto original = static_cast<double>(shape.rope_original_positions);
    for (int64_t i = 0; i < half; ++i) {
        double f = std::pow(shape.config.rope_theta,
                            -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        if (shape.rope_scaling_factor > 0) {
            double wavelength = 2.0 * std::numbers::pi / f;
            double smooth = (original / wavelength - shape.rope_low_freq_factor) /
                            (shape.rope_high_freq_factor - shape.rope_low_freq_factor);
            smooth = std::min(1.0, std::max(0.0, smooth));
            f = (1.0 - smooth) * f / shape.rope_scaling_factor + smooth * f;
        }
        frequencies[static_cast<size_t>(i)] = static_cast<float>(f);
    }
    return frequencies;
}

Graph build_llama_graph(const Shape& shape, DType weight_dtype) {
    return Builder(shape, weight_dtype).build();
}

}  // namespace cleave::models
