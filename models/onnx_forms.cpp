// SPDX-License-Identifier: Apache-2.0
#include "models/onnx_forms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "models/llama_graph.h"
#include "runtime/base/errors.h"

namespace cleave::models {
namespace {

using onnx::TensorProto;

class Form {
public:
    Form(const Shape& shape, const WriteOptions& options, onnx::ModelProto& model,
         OnnxBuilder& builder)
        : shape_(shape), config_(shape.config), options_(options), model_(model), b_(builder) {}

    void build();

private:
    bool is(OnnxForm form) const { return options_.form == form; }
    const Variation& variation() const { return options_.variation; }
    bool needs_mask() const {
        return !is(OnnxForm::kGroupQueryAttention) && !variation().static_cache;
    }
    bool neighbours() const { return variation().rotation >= Rotation::kNeighboursSliced; }

    void declare_inputs();
    void positions_and_lengths();
    void mask();
    std::pair<std::string, std::string> stored_tables(const std::vector<float>& frequencies,
                                                      int copies);
    void cut_tables(const std::vector<float>& frequencies);
    void rope_tables();
    std::string norm(const std::string& x, const std::string& weight_name);
    std::string decomposed_norm(const std::string& x, const std::string& weight);
    std::string linear(const std::string& x, const std::string& name, int64_t in, int64_t out,
                       bool bias);
    std::string heads(const std::string& x, int64_t num_heads);
    std::string rope(const std::string& x);
    std::string rotated_in_pieces(const std::string& x);
    std::string rotated_apart(const std::string& x);
    std::string head_norm(const std::string& x, const std::string& weight_name);
    std::string finished_branch(std::string y, const std::string& norm_name);
    std::string finished_logits(std::string logits);
    std::vector<std::pair<int, const char*>> cache_order() const;
    std::string repeat_kv(const std::string& x);
    std::string decomposed_attention(const std::string& q, const std::string& k,
                                     const std::string& v);
    std::string self_attention(const std::string& normed, int layer);
    std::string group_query_attention(const std::string& q, const std::string& k,
                                      const std::string& v, int layer);
    std::string mlp(const std::string& normed, int layer);
    std::string layers(std::string x);
    std::string skip_norm_layers(std::string x);
    std::string past(int layer, const char* what) const {
        return fmt::format("past_key_values.{}.{}", layer, what);
    }
    std::string present(int layer, const char* what) const {
        return fmt::format("present.{}.{}", layer, what);
    }
    std::string prefix(int layer) const { return fmt::format("model.layers.{}.", layer); }

    const Shape& shape_;
    const importer::ModelConfig& config_;
    const WriteOptions& options_;
    onnx::ModelProto& model_;
    OnnxBuilder& b_;
    std::string sequence_length_, past_length_, total_length_;  // int64 scalars
    std::string position_ids_;                                  // [batch, sequence]
    std::string mask_;                   // bool or additive, [batch, 1, sequence, total]
    std::string cos_, sin_;              // by form: [batch, 1, sequence, head_dim] or tables
    std::string seqlens_k_, total_i32_;  // for GroupQueryAttention
};

std::vector<std::pair<int, const char*>> Form::cache_order() const {
    std::vector<std::pair<int, const char*>> order;
    for (int layer = 0; options_.with_past && layer < config_.num_layers; ++layer)
        for (const char* what : {"key", "value"}) order.emplace_back(layer, what);
    if (variation().keys_first)
        std::stable_partition(order.begin(), order.end(),
                              [](const auto& cache) { return cache.second[0] == 'k'; });
    return order;
}

void Form::declare_inputs() {
    using Dims = importer::OnnxDims;
    const std::string sequence = "sequence_length";
    std::variant<int64_t, std::string> batch = std::string("batch_size");
    if (variation().batch > 0) batch = variation().batch;
    b_.input("input_ids", TensorProto::INT64, Dims{batch, sequence});
    if (variation().static_cache)
        for (const char* name : {"write_indices", "nonpad_kv_seqlen"})
            b_.input(name, TensorProto::INT64, Dims{batch});
    else if (options_.with_past || is(OnnxForm::kGroupQueryAttention))
        b_.input("attention_mask", TensorProto::INT64,
                 Dims{batch, std::string(options_.with_past ? "total_sequence_length"
                                                            : "sequence_length")});
    if (options_.with_position_ids && !is(OnnxForm::kGroupQueryAttention))
        b_.input("position_ids", TensorProto::INT64, Dims{batch, sequence});
    const char *before = "past_sequence_length", *after = "total_sequence_length";
    if (variation().static_cache) before = after = "max_length";
    if (variation().ring_cache) before = "past_sliding_length", after = "total_sliding_length";
    for (auto [layer, what] : cache_order())
        b_.input(past(layer, what), b_.dtype(),
                 Dims{batch, config_.num_kv_heads, std::string(before), config_.head_dim});
    b_.output("logits", TensorProto::FLOAT,
              Dims{batch, sequence, variation().head ? config_.vocab_size : config_.hidden_size});
    for (auto [layer, what] : cache_order())
        b_.output(present(layer, what), b_.dtype(),
                  Dims{batch, config_.num_kv_heads, std::string(after), config_.head_dim});
}

void Form::positions_and_lengths() {
    b_.scope("/model/");
    sequence_length_ = b_.node("Gather", {b_.node("Shape", {"input_ids"}), b_.int_scalar(1)},
                               {{"axis", int64_t{0}}});
    total_length_ = sequence_length_;
    if (options_.with_past) {
        past_length_ = b_.node("Gather", {b_.node("Shape", {past(0, "key")}), b_.int_scalar(2)},
                               {{"axis", int64_t{0}}});
        total_length_ = b_.node("Add", {past_length_, sequence_length_});
    }
    if (options_.with_position_ids && !is(OnnxForm::kGroupQueryAttention)) {
        position_ids_ = "position_ids";
        return;
    }
    std::string first = options_.with_past ? past_length_ : b_.int_scalar(0);
    std::string range = b_.node("Range", {first, total_length_, b_.int_scalar(1)});
    position_ids_ = b_.node("Unsqueeze", {range, b_.ints({0})});
}

// Query p sees keys 0..p (and not below p - window + 1) that attention_mask does not hide.
void Form::mask() {
    std::string zero = b_.int_scalar(0), one = b_.int_scalar(1);
    const bool square = variation().square_mask;
    std::string keys = b_.node("Range", {zero, square ? sequence_length_ : total_length_, one});
    keys = b_.node("Unsqueeze", {keys, b_.ints({0})});  // [1, total]
    std::string rows = b_.node("Range", {zero, sequence_length_, one});
    if (options_.with_past && !square) rows = b_.node("Add", {rows, past_length_});
    std::string queries = b_.node("Unsqueeze", {rows, b_.ints({1})});  // [sequence, 1]
    std::string allowed = b_.node("LessOrEqual", {keys, queries});
    if (shape_.sliding_window > 0) {
        std::string oldest = b_.node("Sub", {queries, b_.int_scalar(shape_.sliding_window)});
        allowed = b_.node("And", {allowed, b_.node("Greater", {keys, oldest})});
    }
    allowed = b_.node("Unsqueeze", {allowed, b_.ints({0, 1})});
    if (square) {
        std::string all = b_.node("Unsqueeze", {total_length_, b_.ints({0})});
        all = b_.node("Concat", {b_.ints({1, 1, 1}), all}, {{"axis", int64_t{0}}});
        allowed = b_.node("Expand", {allowed, all});
    }
    if (options_.with_past) {
        std::string visible = b_.cast("attention_mask", TensorProto::BOOL);
        allowed = b_.node("And", {allowed, b_.node("Unsqueeze", {visible, b_.ints({1, 2})})});
    }
    if (is(OnnxForm::kAttention)) {
        mask_ = allowed;
        return;
    }
    double lowest =
        b_.dtype() == TensorProto::FLOAT16 ? -65504.0 : -std::numeric_limits<float>::max();
    mask_ = b_.node("Where", {allowed, b_.scalar(0.0), b_.scalar(lowest)});
}

// cos and sin with one row for each position that the shape states, every frequency `copies` times
// over.
std::pair<std::string, std::string> Form::stored_tables(const std::vector<float>& frequencies,
                                                        int copies) {
    const int64_t rows = config_.max_positions;
    std::vector<float> cosines, sines;
    for (int64_t p = 0; p < rows; ++p)
        for (int copy = 0; copy < copies; ++copy)
            for (float frequency : frequencies) {
                const double angle = static_cast<double>(p) * frequency;
                cosines.push_back(static_cast<float>(std::cos(angle)));
                sines.push_back(static_cast<float>(std::sin(angle)));
            }
    const int64_t width = copies * static_cast<int64_t>(frequencies.size());
    return {b_.floats(cosines, {rows, width}, false), b_.floats(sines, {rows, width}, false)};
}

// Rows of stored tables that are first cut to the tokens so far.
void Form::cut_tables(const std::vector<float>& frequencies) {
    std::tie(cos_, sin_) = stored_tables(frequencies, 2);
    const std::string end = b_.node("Unsqueeze", {total_length_, b_.ints({0})});
    for (std::string* table : {&cos_, &sin_}) {
        *table = b_.node("Slice", {*table, b_.ints({0}), end, b_.ints({0}), b_.ints({1})});
        *table = b_.node("Gather", {*table, position_ids_}, {{"axis", int64_t{0}}});
        *table = b_.node("Unsqueeze", {*table, b_.ints({1})});
    }
}

void Form::rope_tables() {
    const int64_t half = config_.head_dim / 2;
    std::vector<float> frequencies = rope_frequencies(shape_);
    b_.scope("/model/rotary_emb/");
    if (variation().cut_tables) return cut_tables(frequencies);
    if (is(OnnxForm::kDecomposed) || is(OnnxForm::kFunctions)) {
        std::string inverse = b_.floats(frequencies, {1, half, 1});
        if (variation().frequencies_change_at > 0) {
            for (float& f : frequencies) f /= 2;
            std::string largest = b_.node("ReduceMax", {position_ids_}, {{"keepdims", int64_t{0}}});
            std::string late = b_.node("GreaterOrEqual",
                                       {largest, b_.int_scalar(variation().frequencies_change_at)});
            inverse = b_.node("Where", {late, b_.floats(frequencies, {1, half, 1}), inverse});
        }
        std::string positions =
            b_.cast(b_.node("Unsqueeze", {position_ids_, b_.ints({1})}), TensorProto::FLOAT);
        std::string angles = b_.node("Transpose", {b_.node("MatMul", {inverse, positions})},
                                     {{"perm", std::vector<int64_t>{0, 2, 1}}});
        std::string both = angles;
        if (variation().rotation == Rotation::kHalves) {
            both = b_.node("Concat", {angles, angles}, {{"axis", int64_t{-1}}});
        } else if (variation().rotation == Rotation::kNeighboursSliced) {
            std::string apart = b_.node("Unsqueeze", {angles, b_.ints({3})});
            both = b_.node("Reshape", {b_.node("Concat", {apart, apart}, {{"axis", int64_t{-1}}}),
                                       b_.ints({0, -1, config_.head_dim})});
        }
        for (auto [target, type] : {std::pair{&cos_, "Cos"}, std::pair{&sin_, "Sin"}}) {
            std::string table = b_.node(type, {both});
            if (!b_.is_f32()) table = b_.cast(table, b_.dtype());
            *target = b_.node("Unsqueeze", {table, b_.ints({1})});
        }
        return;
    }
    std::tie(cos_, sin_) = stored_tables(frequencies, 1);
}

std::string Form::decomposed_norm(const std::string& x, const std::string& weight) {
    std::string wide = b_.is_f32() ? x : b_.cast(x, TensorProto::FLOAT);
    std::string square = b_.node("Pow", {wide, b_.floats({2.0f}, {})});
    const Attribute keep{"keepdims", int64_t{1}};  // the axes became an input in opset 18
    std::string mean =
        is(OnnxForm::kAttention)
            ? b_.node("ReduceMean", {square, b_.ints({-1})}, {keep})
            : b_.node("ReduceMean", {square}, {{"axes", std::vector<int64_t>{-1}}, keep});
    std::string root = b_.node(
        "Sqrt",
        {b_.node("Add", {mean, b_.floats({static_cast<float>(config_.rms_norm_eps)}, {})})});
    std::string y = b_.node("Mul", {wide, b_.node("Div", {b_.floats({1.0f}, {}), root})});
    if (!b_.is_f32()) y = b_.cast(y, b_.dtype());
    return b_.node("Mul", {weight, y});
}

std::string Form::norm(const std::string& x, const std::string& name) {
    std::string weight = b_.weight(name + ".weight", {config_.hidden_size}, 0);
    const double epsilon = config_.rms_norm_eps;
    switch (options_.form) {
        case OnnxForm::kDecomposed: return decomposed_norm(x, weight);
        case OnnxForm::kFunctions:
            return b_.node(std::string(kFunctionDomain) + ".RmsNorm", {x, weight},
                           {{"epsilon", epsilon}});
        case OnnxForm::kAttention:
            return b_.node("RMSNormalization", {x, weight},
                           {{"axis", int64_t{-1}}, {"epsilon", epsilon}});
        case OnnxForm::kGroupQueryAttention:
            return b_.node(
                "SimplifiedLayerNormalization", {x, weight},
                {{"axis", int64_t{-1}}, {"epsilon", epsilon}, {"stash_type", int64_t{1}}});
    }
    return {};
}

std::string Form::linear(const std::string& x, const std::string& name, int64_t in, int64_t out,
                         bool bias) {
    std::string y = b_.node("MatMul", {x, b_.weight(name + ".weight", {in, out}, in)});
    return bias ? b_.node("Add", {b_.weight(name + ".bias", {out}, in), y}) : y;
}

// [batch, sequence, features] -> [batch, heads, sequence, head_dim]
std::string Form::heads(const std::string& x, int64_t num_heads) {
    std::string split = b_.node("Reshape", {x, b_.ints({0, 0, num_heads, config_.head_dim})});
    return b_.node("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

std::string Form::rope(const std::string& x) {
    if (is(OnnxForm::kAttention)) return b_.node("RotaryEmbedding", {x, cos_, sin_, position_ids_});
    if (is(OnnxForm::kFunctions))
        return b_.node(std::string(kFunctionDomain) + ".Rope", {x, cos_, sin_});
    if (variation().rotation != Rotation::kHalves) return rotated_in_pieces(x);
    const int64_t half = config_.head_dim / 2;
    std::string axis = b_.ints({3});
    std::string low = b_.node("Slice", {x, b_.ints({0}), b_.ints({half}), axis});
    std::string high = b_.node(
        "Slice", {x, b_.ints({half}), b_.ints({std::numeric_limits<int64_t>::max()}), axis});
    std::string rotated = b_.node("Concat", {b_.node("Neg", {high}), low}, {{"axis", int64_t{-1}}});
    return b_.node("Add", {b_.node("Mul", {x, cos_}), b_.node("Mul", {rotated, sin_})});
}

// x1 * cos - x2 * sin and x2 * cos + x1 * sin of halves or of the two of each pair.
std::string Form::rotated_apart(const std::string& x) {
    const int64_t half = config_.head_dim / 2, end = std::numeric_limits<int64_t>::max();
    std::string a, b;
    if (variation().rotation == Rotation::kHalvesApart) {
        a = b_.node("Slice", {x, b_.ints({0}), b_.ints({half}), b_.ints({3})});
        b = b_.node("Slice", {x, b_.ints({half}), b_.ints({end}), b_.ints({3})});
    } else {
        std::string pairs = b_.node("Reshape", {x, b_.ints({0, 0, 0, half, 2})});
        if (variation().rotation == Rotation::kNeighboursGathered) {
            a = b_.node("Gather", {pairs, b_.int_scalar(0)}, {{"axis", int64_t{4}}});
            b = b_.node("Gather", {pairs, b_.int_scalar(1)}, {{"axis", int64_t{4}}});
        } else {
            a = x + "/even";
            b = x + "/odd";
            b_.node_to("Split", {pairs}, {a, b}, {{"axis", int64_t{-1}}});
            a = b_.node("Squeeze", {a, b_.ints({-1})});
            b = b_.node("Squeeze", {b, b_.ints({-1})});
        }
    }
    std::string first = b_.node("Sub", {b_.node("Mul", {a, cos_}), b_.node("Mul", {b, sin_})});
    std::string second = b_.node("Add", {b_.node("Mul", {a, sin_}), b_.node("Mul", {b, cos_})});
    if (!neighbours()) return b_.node("Concat", {first, second}, {{"axis", int64_t{-1}}});
    std::string stacked = b_.node(
        "Concat",
        {b_.node("Unsqueeze", {first, b_.ints({4})}), b_.node("Unsqueeze", {second, b_.ints({4})})},
        {{"axis", int64_t{-1}}});
    return b_.node("Reshape", {stacked, b_.ints({0, 0, 0, -1})});
}

std::string Form::rotated_in_pieces(const std::string& x) {
    if (variation().rotation != Rotation::kNeighboursSliced) return rotated_apart(x);
    const int64_t end = std::numeric_limits<int64_t>::max();
    const auto every_second = [&](int64_t first) {
        return b_.node("Slice", {x, b_.ints({first}), b_.ints({end}), b_.ints({3}), b_.ints({2})});
    };
    std::string even = b_.node("Unsqueeze", {every_second(0), b_.ints({-1})});
    std::string odd = b_.node("Unsqueeze", {b_.node("Neg", {every_second(1)}), b_.ints({-1})});
    std::string rotated =
        b_.node("Reshape", {b_.node("Concat", {odd, even}, {{"axis", int64_t{-1}}}),
                            b_.ints({0, 0, 0, config_.head_dim})});
    return b_.node("Add", {b_.node("Mul", {x, cos_}), b_.node("Mul", {rotated, sin_})});
}

std::string Form::repeat_kv(const std::string& x) {
    const int64_t groups = config_.num_heads / config_.num_kv_heads;
    if (groups == 1) return x;
    std::string wide = b_.node("Unsqueeze", {x, b_.ints({2})});
    wide = b_.node("Expand", {wide, b_.ints({1, 1, groups, 1, 1})});
    return b_.node("Reshape",
                   {wide, b_.node("Concat", {b_.ints({0, config_.num_heads, -1, config_.head_dim})},
                                  {{"axis", int64_t{0}}})});
}

std::string Form::decomposed_attention(const std::string& q, const std::string& k,
                                       const std::string& v) {
    std::string keys =
        b_.node("Transpose", {repeat_kv(k)}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    std::string scores =
        b_.node("Mul", {b_.node("MatMul", {q, keys}),
                        b_.scalar(1.0 / std::sqrt(static_cast<double>(config_.head_dim)))});
    if (variation().score_softcap > 0) {
        scores = b_.node("Tanh", {b_.node("Div", {scores, b_.scalar(variation().score_softcap)})});
        scores = b_.node("Mul", {scores, b_.scalar(variation().score_softcap)});
    }
    scores = b_.node("Add", {scores, mask_});
    if (!b_.is_f32()) scores = b_.cast(scores, TensorProto::FLOAT);
    std::string weights = b_.node("Softmax", {scores}, {{"axis", int64_t{-1}}});
    if (!b_.is_f32()) weights = b_.cast(weights, b_.dtype());
    return b_.node("MatMul", {weights, repeat_kv(v)});
}

std::string Form::group_query_attention(const std::string& q, const std::string& k,
                                        const std::string& v, int layer) {
    std::string y = fmt::format("/model/layers.{}/attn/output_0", layer);
    std::vector<std::string> inputs{
        q, k, v, past(layer, "key"), past(layer, "value"), seqlens_k_, total_i32_, cos_, sin_};
    std::vector<Attribute> attributes{
        {"num_heads", config_.num_heads},
        {"kv_num_heads", config_.num_kv_heads},
        {"do_rotary", int64_t{1}},
        {"rotary_interleaved", int64_t{0}},
        {"scale", 1.0 / std::sqrt(static_cast<double>(config_.head_dim))},
        {"local_window_size", shape_.sliding_window > 0 ? shape_.sliding_window : int64_t{-1}}};
    if (options_.variation.qk_norm) {
        inputs.resize(14);  // positions, bias, sink and cache scales are left out
        for (const char* which : {"q_norm.weight", "k_norm.weight"})
            inputs.push_back(
                b_.weight(prefix(layer) + "self_attn." + which, {config_.head_dim}, 0));
        attributes.emplace_back("qk_norm_epsilon", config_.rms_norm_eps);
    }
    if (options_.variation.ring_cache) attributes.emplace_back("sliding_window_cache", int64_t{1});
    b_.node_to("com.microsoft.GroupQueryAttention", inputs,
               {y, present(layer, "key"), present(layer, "value")}, attributes);
    return y;
}

std::string Form::self_attention(const std::string& normed, int layer) {
    const std::string p = prefix(layer) + "self_attn.";
    const int64_t q_features = config_.num_heads * config_.head_dim,
                  kv_features = config_.num_kv_heads * config_.head_dim;
    std::string q = linear(normed, p + "q_proj", config_.hidden_size, q_features, shape_.qkv_bias);
    std::string k = linear(normed, p + "k_proj", config_.hidden_size, kv_features, shape_.qkv_bias);
    std::string v = linear(normed, p + "v_proj", config_.hidden_size, kv_features, shape_.qkv_bias);
    if (is(OnnxForm::kGroupQueryAttention))
        return linear(group_query_attention(q, k, v, layer), p + "o_proj", q_features,
                      config_.hidden_size, shape_.o_bias);
    if (variation().joint_qk_norm) {
        q = decomposed_norm(q, b_.weight(p + "q_norm.weight", {q_features}, 0));
        k = decomposed_norm(k, b_.weight(p + "k_norm.weight", {kv_features}, 0));
    }
    q = heads(q, config_.num_heads);
    k = heads(k, config_.num_kv_heads);
    v = heads(v, config_.num_kv_heads);
    if (options_.variation.qk_norm) {
        q = head_norm(q, p + "q_norm");
        k = head_norm(k, p + "k_norm");
    }
    q = rope(q);
    k = rope(k);
    std::string y;
    if (options_.variation.static_cache) {
        const std::string new_k = present(layer, "key"), new_v = present(layer, "value");
        b_.node_to("TensorScatter", {past(layer, "key"), k, "write_indices"}, {new_k},
                   {{"axis", int64_t{2}}});
        b_.node_to("TensorScatter", {past(layer, "value"), v, "write_indices"}, {new_v},
                   {{"axis", int64_t{2}}});
        y = b_.node("Attention", {q, new_k, new_v, "", "", "", "nonpad_kv_seqlen"},
                    {{"scale", 1.0 / std::sqrt(static_cast<double>(config_.head_dim))},
                     {"is_causal", int64_t{1}}});
    } else if (is(OnnxForm::kAttention)) {
        y = fmt::format("/model/layers.{}/attn/output_0", layer);
        std::vector<std::string> inputs{q, k, v, mask_}, outputs{y};
        if (options_.with_past) {
            inputs.insert(inputs.end(), {past(layer, "key"), past(layer, "value")});
            outputs.insert(outputs.end(), {present(layer, "key"), present(layer, "value")});
        }
        b_.node_to("Attention", inputs, outputs,
                   {{"scale", 1.0 / std::sqrt(static_cast<double>(config_.head_dim))}});
    } else {
        if (options_.with_past) {
            b_.node_to("Concat", {past(layer, "key"), k}, {present(layer, "key")},
                       {{"axis", int64_t{-2}}});
            b_.node_to("Concat", {past(layer, "value"), v}, {present(layer, "value")},
                       {{"axis", int64_t{-2}}});
            k = present(layer, "key");
            v = present(layer, "value");
        }
        y = decomposed_attention(q, k, v);
    }
    y = b_.node("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    y = b_.node("Reshape", {y, b_.ints({0, 0, q_features})});
    return linear(y, p + "o_proj", q_features, config_.hidden_size, shape_.o_bias);
}

std::string Form::mlp(const std::string& normed, int layer) {
    const std::string p = prefix(layer) + "mlp.";
    std::string gate = linear(normed, p + "gate_proj", config_.hidden_size,
                              config_.intermediate_size, shape_.mlp_bias);
    std::string up = linear(normed, p + "up_proj", config_.hidden_size, config_.intermediate_size,
                            shape_.mlp_bias);
    std::string silu = b_.node("Mul", {gate, b_.node("Sigmoid", {gate})});
    return linear(b_.node("Mul", {silu, up}), p + "down_proj", config_.intermediate_size,
                  config_.hidden_size, shape_.mlp_bias);
}

std::string Form::head_norm(const std::string& x, const std::string& name) {
    return decomposed_norm(x, b_.weight(name + ".weight", {config_.head_dim}, 0));
}

// What some models do to a block's result before it is added.
std::string Form::finished_branch(std::string y, const std::string& norm_name) {
    if (variation().norms_behind) y = norm(y, norm_name);
    if (variation().residual_factor != 1)
        y = b_.node("Mul", {y, b_.scalar(variation().residual_factor)});
    return y;
}

std::string Form::finished_logits(std::string logits) {
    if (variation().logits_divisor != 1)
        logits = b_.node("Div", {logits, b_.scalar(variation().logits_divisor)});
    if (variation().logits_softcap == 0) return logits;
    logits = b_.node("Tanh", {b_.node("Div", {logits, b_.scalar(variation().logits_softcap)})});
    return b_.node("Mul", {logits, b_.scalar(variation().logits_softcap)});
}

std::string Form::layers(std::string x) {
    for (int layer = 0; layer < config_.num_layers; ++layer) {
        b_.scope(fmt::format("/model/layers.{}/", layer));
        std::string y = self_attention(norm(x, prefix(layer) + "input_layernorm"), layer);
        x = b_.node("Add", {x, finished_branch(y, prefix(layer) + "attention_post_norm")});
        y = mlp(norm(x, prefix(layer) + "post_attention_layernorm"), layer);
        x = b_.node("Add", {x, finished_branch(y, prefix(layer) + "mlp_post_norm")});
    }
    b_.scope("/model/");
    return norm(x, "model.norm");
}

// The contrib form folds each residual Add into the norm after it; its fourth output is the sum.
std::string Form::skip_norm_layers(std::string x) {
    auto skip = [&](const std::string& skipped, const std::string& y, const std::string& name,
                    std::string* sum) {
        std::string normed = fmt::format("{}/output_0", name);
        *sum = fmt::format("{}/output_3", name);
        b_.node_to("com.microsoft.SkipSimplifiedLayerNormalization",
                   {skipped, y, b_.weight(name + ".weight", {config_.hidden_size}, 0)},
                   {normed, "", "", *sum}, {{"epsilon", config_.rms_norm_eps}});
        return normed;
    };
    std::string normed = norm(x, prefix(0) + "input_layernorm");
    for (int layer = 0; layer < config_.num_layers; ++layer) {
        b_.scope(fmt::format("/model/layers.{}/", layer));
        std::string sum;
        normed = skip(x, self_attention(normed, layer), prefix(layer) + "post_attention_layernorm",
                      &sum);
        bool last = layer + 1 == config_.num_layers;
        normed = skip(sum, mlp(normed, layer),
                      last ? "model.norm" : prefix(layer + 1) + "input_layernorm", &x);
    }
    return normed;
}

void Form::build() {
    const bool contrib = is(OnnxForm::kGroupQueryAttention);
    if (contrib && !options_.with_past)
        throw UserError(
            "a GroupQueryAttention graph has a past: set with_past, or choose another form");
    b_.opset("", variation().static_cache   ? 24
                 : is(OnnxForm::kAttention) ? 23
                 : is(OnnxForm::kFunctions) ? 18
                                            : 17);
    model_.set_ir_version(is(OnnxForm::kAttention) ? 11 : is(OnnxForm::kFunctions) ? 9 : 8);
    if (contrib) b_.opset("com.microsoft", 1);
    if (is(OnnxForm::kFunctions)) add_functions(model_, b_);
    declare_inputs();
    if (!contrib) positions_and_lengths();
    if (needs_mask()) mask();
    rope_tables();
    if (contrib) {
        b_.scope("/model/attn_mask/");
        std::string sum =
            b_.node("ReduceSum", {"attention_mask", b_.ints({1})}, {{"keepdims", int64_t{0}}});
        seqlens_k_ = b_.cast(b_.node("Sub", {sum, b_.ints({1})}), TensorProto::INT32);
        total_i32_ =
            b_.cast(b_.node("Gather", {b_.node("Shape", {"attention_mask"}), b_.int_scalar(1)},
                            {{"axis", int64_t{0}}}),
                    TensorProto::INT32);
    }
    b_.scope("/model/");
    const std::string table =
        b_.weight("model.embed_tokens.weight", {config_.vocab_size, config_.hidden_size},
                  config_.hidden_size);
    std::string x = b_.node("Gather", {table, "input_ids"}, {{"axis", int64_t{0}}});
    x = contrib ? skip_norm_layers(x) : layers(x);
    b_.scope("/lm_head/");
    std::string logits;
    if (!variation().head) {
        logits = x;
    } else if (config_.tied_embeddings) {
        logits = b_.node(
            "MatMul", {x, b_.node("Transpose", {table}, {{"perm", std::vector<int64_t>{1, 0}}})});
    } else {
        logits = linear(x, "lm_head", config_.hidden_size, config_.vocab_size, false);
    }
    if (variation().head) logits = finished_logits(logits);
    if (b_.is_f32())
        b_.node_to("Identity", {logits}, {"logits"});
    else
        b_.node_to("Cast", {logits}, {"logits"}, {{"to", int64_t{TensorProto::FLOAT}}});
}

}  // namespace

void build_onnx_graph(const Shape& shape, const WriteOptions& options, onnx::ModelProto& model,
                      OnnxBuilder& builder) {
    Form(shape, options, model, builder).build();
}

}  // namespace cleave::models
