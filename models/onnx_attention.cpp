// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "models/onnx_form.h"

namespace cleave::models {

using onnx::TensorProto;

// [batch, sequence, features] -> [batch, heads, sequence, head_dim]
std::string Form::heads(const std::string& x, int64_t num_heads) {
    std::string split = b_.node("Reshape", {x, b_.ints({0, 0, num_heads, config_.head_dim})});
    return b_.node("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

std::string Form::rope(const std::string& x, int layer) {
    const int index = shape_.layer(layer).rope;
    if (index < 0) return x;
    const Tables& table = tables_.at(static_cast<size_t>(index));
    const int64_t n = rotary_dim();
    if (is(OnnxForm::kAttention)) {
        std::vector<std::string> inputs{x, table.first, table.second};
        if (!options_.as_hugging_face) inputs.push_back(position_ids_);
        std::vector<Attribute> attributes;
        if (n < config_.head_dim) attributes.emplace_back("rotary_embedding_dim", n);
        if (neighbours()) attributes.emplace_back("interleaved", int64_t{1});
        return b_.node("RotaryEmbedding", inputs, attributes);
    }
    if (n == config_.head_dim) return rotated(x, table);
    const std::string axis = b_.ints({3}), end = b_.ints({n});
    std::string first = b_.node("Slice", {x, b_.ints({0}), end, axis});
    std::string rest =
        b_.node("Slice", {x, end, b_.ints({std::numeric_limits<int64_t>::max()}), axis});
    return b_.node("Concat", {rotated(first, table), rest}, {{"axis", int64_t{-1}}});
}

// Of heads whose features all turn.
std::string Form::rotated(const std::string& x, const Tables& table) {
    if (is(OnnxForm::kFunctions))
        return b_.node(std::string(kFunctionDomain) + ".Rope", {x, table.first, table.second});
    if (variation().rotation != Rotation::kHalves) return rotated_in_pieces(x, table);
    const int64_t half = rotary_dim() / 2;
    std::string axis = b_.ints({3});
    std::string low = b_.node("Slice", {x, b_.ints({0}), b_.ints({half}), axis});
    std::string high = b_.node(
        "Slice", {x, b_.ints({half}), b_.ints({std::numeric_limits<int64_t>::max()}), axis});
    std::string rotated = b_.node("Concat", {b_.node("Neg", {high}), low}, {{"axis", int64_t{-1}}});
    return b_.node("Add",
                   {b_.node("Mul", {x, table.first}), b_.node("Mul", {rotated, table.second})});
}

// x1 * cos - x2 * sin and x2 * cos + x1 * sin of halves or of the two of each pair.
std::string Form::rotated_apart(const std::string& x, const Tables& table) {
    const int64_t half = rotary_dim() / 2, end = std::numeric_limits<int64_t>::max();
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
    const auto& [cosines, sines] = table;
    std::string first = b_.node("Sub", {b_.node("Mul", {a, cosines}), b_.node("Mul", {b, sines})});
    std::string second = b_.node("Add", {b_.node("Mul", {a, sines}), b_.node("Mul", {b, cosines})});
    if (!neighbours()) return b_.node("Concat", {first, second}, {{"axis", int64_t{-1}}});
    std::string stacked = b_.node(
        "Concat",
        {b_.node("Unsqueeze", {first, b_.ints({4})}), b_.node("Unsqueeze", {second, b_.ints({4})})},
        {{"axis", int64_t{-1}}});
    return b_.node("Reshape", {stacked, b_.ints({0, 0, 0, -1})});
}

std::string Form::rotated_in_pieces(const std::string& x, const Tables& table) {
    if (variation().rotation != Rotation::kNeighboursSliced) return rotated_apart(x, table);
    const int64_t end = std::numeric_limits<int64_t>::max();
    const auto every_second = [&](int64_t first) {
        return b_.node("Slice", {x, b_.ints({first}), b_.ints({end}), b_.ints({3}), b_.ints({2})});
    };
    std::string even = b_.node("Unsqueeze", {every_second(0), b_.ints({-1})});
    std::string odd = b_.node("Unsqueeze", {b_.node("Neg", {every_second(1)}), b_.ints({-1})});
    std::string rotated =
        b_.node("Reshape", {b_.node("Concat", {odd, even}, {{"axis", int64_t{-1}}}),
                            b_.ints({0, 0, 0, rotary_dim()})});
    return b_.node("Add",
                   {b_.node("Mul", {x, table.first}), b_.node("Mul", {rotated, table.second})});
}

double Form::attention_scale() const {
    return variation().attention_scale > 0 ? variation().attention_scale
                                           : 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
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
                                       const std::string& v, int layer) {
    std::string keys =
        b_.node("Transpose", {repeat_kv(k)}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    std::string scores =
        b_.node("Mul", {b_.node("MatMul", {q, keys}), b_.scalar(attention_scale())});
    if (variation().score_softcap > 0) {
        scores = b_.node("Tanh", {b_.node("Div", {scores, b_.scalar(variation().score_softcap)})});
        scores = b_.node("Mul", {scores, b_.scalar(variation().score_softcap)});
    }
    scores = b_.node("Add", {scores, masks_.at(shape_.layer(layer).window)});
    if (!b_.is_f32()) scores = b_.cast(scores, TensorProto::FLOAT);
    std::string weights = b_.node("Softmax", {scores}, {{"axis", int64_t{-1}}});
    if (!b_.is_f32()) weights = b_.cast(weights, b_.dtype());
    return b_.node("MatMul", {weights, repeat_kv(v)});
}

std::string Form::group_query_attention(const std::string& q, const std::string& k,
                                        const std::string& v, int layer) {
    std::string y = fmt::format("/model/layers.{}/attn/output_0", layer);
    const auto [window, rope] = shape_.layer(layer);
    std::vector<std::string> inputs{
        q, k, v, past(layer, "key"), past(layer, "value"), seqlens_k_, total_i32_};
    if (rope >= 0) {
        const Tables& table = tables_.at(static_cast<size_t>(rope));
        inputs.insert(inputs.end(), {table.first, table.second});
    }
    std::vector<Attribute> attributes{{"num_heads", config_.num_heads},
                                      {"kv_num_heads", config_.num_kv_heads},
                                      {"do_rotary", int64_t{rope >= 0}},
                                      {"rotary_interleaved", int64_t{neighbours()}},
                                      {"scale", attention_scale()},
                                      {"local_window_size", window > 0 ? window : int64_t{-1}}};
    if (variation().score_softcap > 0)
        attributes.emplace_back("softcap", variation().score_softcap);
    if (variation().qk_norm && !options_.as_hugging_face) {
        inputs.resize(14);  // positions, bias, sink and cache scales are left out
        for (const char* which : {"q_norm.weight", "k_norm.weight"})
            inputs.push_back(
                b_.weight(prefix(layer) + "self_attn." + which, {config_.head_dim}, 0));
        attributes.emplace_back("qk_norm_epsilon", config_.rms_norm_eps);
    }
    if (variation().ring_cache) attributes.emplace_back("sliding_window_cache", int64_t{1});
    b_.node_to("com.microsoft.GroupQueryAttention", inputs,
               {y, present(layer, "key"), present(layer, "value")}, attributes);
    return y;
}

// q, k and v of the layer's input, [batch, sequence, features] each.
std::array<std::string, 3> Form::projections(const std::string& normed, int layer) {
    const std::string p = prefix(layer) + "self_attn.";
    const int64_t q_features = config_.num_heads * config_.head_dim,
                  kv_features = config_.num_kv_heads * config_.head_dim;
    std::array<std::string, 3> qkv;
    if (variation().fused_projections) {
        const std::string all = linear(normed, p + "qkv_proj", config_.hidden_size,
                                       q_features + 2 * kv_features, shape_.qkv_bias);
        qkv = {all + "/q", all + "/k", all + "/v"};
        b_.node_to("Split", {all, b_.ints({q_features, kv_features, kv_features})},
                   {qkv[0], qkv[1], qkv[2]}, {{"axis", int64_t{-1}}});
        return qkv;
    }
    qkv[0] = linear(normed, p + "q_proj", config_.hidden_size, q_features, shape_.qkv_bias);
    qkv[1] = linear(normed, p + "k_proj", config_.hidden_size, kv_features, shape_.qkv_bias);
    qkv[2] = linear(normed, p + "v_proj", config_.hidden_size, kv_features, shape_.qkv_bias);
    if (variation().joint_qk_norm) {
        qkv[0] = decomposed_norm(qkv[0], b_.weight(p + "q_norm.weight", {q_features}, 0));
        qkv[1] = decomposed_norm(qkv[1], b_.weight(p + "k_norm.weight", {kv_features}, 0));
    }
    return qkv;
}

std::string Form::self_attention(const std::string& normed, int layer) {
    const std::string p = prefix(layer) + "self_attn.";
    const int64_t q_features = config_.num_heads * config_.head_dim;
    auto [q, k, v] = projections(normed, layer);
    if (!position_scale_.empty()) q = b_.node("Mul", {q, position_scale_});
    // ONNX Runtime's CPU provider takes no norms inside.
    if (is(OnnxForm::kGroupQueryAttention) && variation().qk_norm && options_.as_hugging_face)
        for (auto [x, name] : {std::pair{&q, "q_norm"}, {&k, "k_norm"}}) {
            *x = b_.node("Reshape", {*x, b_.ints({0, 0, -1, config_.head_dim})});
            *x = b_.node("Reshape", {head_norm(*x, p + name), b_.ints({0, 0, -1})});
        }
    if (is(OnnxForm::kGroupQueryAttention))
        return linear(group_query_attention(q, k, v, layer), p + "o_proj", q_features,
                      config_.hidden_size, shape_.o_bias);
    q = heads(q, config_.num_heads);
    k = heads(k, config_.num_kv_heads);
    v = heads(v, config_.num_kv_heads);
    if (variation().qk_norm) {
        q = head_norm(q, p + "q_norm");
        k = head_norm(k, p + "k_norm");
    }
    q = rope(q, layer);
    k = rope(k, layer);
    std::string y;
    if (variation().static_cache) {
        const std::string new_k = present(layer, "key"), new_v = present(layer, "value");
        b_.node_to("TensorScatter", {past(layer, "key"), k, "write_indices"}, {new_k},
                   {{"axis", int64_t{2}}});
        b_.node_to("TensorScatter", {past(layer, "value"), v, "write_indices"}, {new_v},
                   {{"axis", int64_t{2}}});
        y = b_.node("Attention", {q, new_k, new_v, "", "", "", "nonpad_kv_seqlen"},
                    {{"scale", attention_scale()}, {"is_causal", int64_t{1}}});
    } else if (is(OnnxForm::kAttention)) {
        y = fmt::format("/model/layers.{}/attn/output_0", layer);
        std::vector<std::string> inputs{q, k, v, masks_.at(shape_.layer(layer).window)}, outputs{y};
        if (options_.with_past) {
            inputs.insert(inputs.end(), {past(layer, "key"), past(layer, "value")});
            outputs.insert(outputs.end(), {present(layer, "key"), present(layer, "value")});
        }
        std::vector<Attribute> attributes{{"scale", attention_scale()}};
        if (variation().score_softcap > 0)
            attributes.emplace_back("softcap", variation().score_softcap);
        b_.node_to("Attention", inputs, outputs, attributes);
    } else {
        if (options_.with_past) {
            b_.node_to("Concat", {past(layer, "key"), k}, {present(layer, "key")},
                       {{"axis", int64_t{-2}}});
            b_.node_to("Concat", {past(layer, "value"), v}, {present(layer, "value")},
                       {{"axis", int64_t{-2}}});
            k = present(layer, "key");
            v = present(layer, "value");
        }
        y = decomposed_attention(q, k, v, layer);
    }
    y = b_.node("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    y = b_.node("Reshape", {y, b_.ints({0, 0, q_features})});
    return linear(y, p + "o_proj", q_features, config_.hidden_size, shape_.o_bias);
}

}  // namespace cleave::models
