// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/llama_graph.h"
#include "models/onnx_form.h"

namespace cleave::models {

using onnx::TensorProto;

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

// Query p sees keys 0..p (with a window not below p - window + 1) that attention_mask does not
// hide.
void Form::mask(int64_t window) {
    std::string zero = b_.int_scalar(0), one = b_.int_scalar(1);
    const bool square = variation().square_mask;
    std::string keys = b_.node("Range", {zero, square ? sequence_length_ : total_length_, one});
    keys = b_.node("Unsqueeze", {keys, b_.ints({0})});  // [1, total]
    std::string rows = b_.node("Range", {zero, sequence_length_, one});
    if (options_.with_past && !square) rows = b_.node("Add", {rows, past_length_});
    std::string queries = b_.node("Unsqueeze", {rows, b_.ints({1})});  // [sequence, 1]
    std::string allowed = b_.node("LessOrEqual", {keys, queries});
    if (window > 0) {
        std::string oldest = b_.node("Sub", {queries, b_.int_scalar(window)});
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
        masks_[window] = allowed;
        return;
    }
    double lowest =
        b_.dtype() == TensorProto::FLOAT16 ? -65504.0 : -std::numeric_limits<float>::max();
    masks_[window] = b_.node("Where", {allowed, b_.scalar(0.0), b_.scalar(lowest)});
}

// cos and sin with one row for each position that the shape states, every frequency `copies` times
// over.
Form::Tables Form::stored_tables(const std::vector<float>& frequencies, int copies) {
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
Form::Tables Form::cut_tables(const std::vector<float>& frequencies) {
    auto [cosines, sines] = stored_tables(frequencies, 2);
    const std::string end = b_.node("Unsqueeze", {total_length_, b_.ints({0})});
    for (std::string* table : {&cosines, &sines}) {
        *table = b_.node("Slice", {*table, b_.ints({0}), end, b_.ints({0}), b_.ints({1})});
        *table = b_.node("Gather", {*table, position_ids_}, {{"axis", int64_t{0}}});
        *table = b_.node("Unsqueeze", {*table, b_.ints({1})});
    }
    return {cosines, sines};
}

// The frequencies in force, f32 of `shape`.
std::string Form::chosen(const Frequencies& rope, const std::vector<int64_t>& shape) {
    std::string values = b_.floats(rope.values, shape);
    if (rope.change_at == 0) return values;
    std::string length = total_length_;
    if (is(OnnxForm::kGroupQueryAttention)) {
        length = b_.node("Gather", {b_.node("Shape", {"attention_mask"}), b_.int_scalar(1)},
                         {{"axis", int64_t{0}}});
    } else {
        std::string largest = b_.node("ReduceMax", {position_ids_}, {{"keepdims", int64_t{0}}});
        length = b_.node("Add", {largest, b_.int_scalar(1)});
    }
    const std::string late = b_.node("Greater", {length, b_.int_scalar(rope.change_at)});
    std::string later;
    if (rope.ntk_factor > 0) {
        // NTK-aware scaling by the length so far: the base grows.
        const auto n = static_cast<double>(rotary_dim());
        std::string ratio = b_.node(
            "Mul",
            {b_.cast(length, TensorProto::FLOAT),
             b_.floats({static_cast<float>(rope.ntk_factor / static_cast<double>(rope.change_at))},
                       {})});
        ratio = b_.node("Sub", {ratio, b_.floats({static_cast<float>(rope.ntk_factor - 1)}, {})});
        std::vector<float> exponents;
        for (size_t i = 0; i < rope.values.size(); ++i)
            exponents.push_back(static_cast<float>(-2.0 * static_cast<double>(i) / (n - 2)));
        later = b_.node("Mul", {values, b_.node("Pow", {ratio, b_.floats(exponents, shape)})});
    } else {
        later = b_.floats(rope.later, shape);
    }
    return b_.node("Where", {late, later, values});
}

// cos and sin of angles, of the model's type.
Form::Tables Form::turned(const Frequencies& rope, const std::string& angles) {
    Tables tables;
    for (auto [target, type] :
         {std::pair{&tables.first, "Cos"}, std::pair{&tables.second, "Sin"}}) {
        *target = b_.node(type, {angles});
        if (rope.magnitude != 1)
            *target =
                b_.node("Mul", {*target, b_.floats({static_cast<float>(rope.magnitude)}, {})});
        if (!b_.is_f32()) *target = b_.cast(*target, b_.dtype());
    }
    return tables;
}

// A row for each token, from its position.
Form::Tables Form::computed_tables(const Frequencies& rope) {
    const int64_t half = rotary_dim() / 2;
    const std::string inverse = chosen(rope, {1, half, 1});
    std::string positions =
        b_.cast(b_.node("Unsqueeze", {position_ids_, b_.ints({1})}), TensorProto::FLOAT);
    std::string angles = b_.node("Transpose", {b_.node("MatMul", {inverse, positions})},
                                 {{"perm", std::vector<int64_t>{0, 2, 1}}});
    if (is(OnnxForm::kAttention)) return turned(rope, angles);
    if (variation().rotation == Rotation::kHalves) {
        angles = b_.node("Concat", {angles, angles}, {{"axis", int64_t{-1}}});
    } else if (variation().rotation == Rotation::kNeighboursSliced) {
        std::string apart = b_.node("Unsqueeze", {angles, b_.ints({3})});
        angles = b_.node("Reshape", {b_.node("Concat", {apart, apart}, {{"axis", int64_t{-1}}}),
                                     b_.ints({0, -1, rotary_dim()})});
    }
    auto [cosines, sines] = turned(rope, angles);
    return {b_.node("Unsqueeze", {cosines, b_.ints({1})}),
            b_.node("Unsqueeze", {sines, b_.ints({1})})};
}

// A row for each position so far, [total, rotary_dim / 2], as GroupQueryAttention takes them.
Form::Tables Form::cache_tables(const Frequencies& rope) {
    std::string total = b_.node("Gather", {b_.node("Shape", {"attention_mask"}), b_.int_scalar(1)},
                                {{"axis", int64_t{0}}});
    std::string positions = b_.node("Range", {b_.int_scalar(0), total, b_.int_scalar(1)});
    positions = b_.cast(b_.node("Unsqueeze", {positions, b_.ints({1})}), TensorProto::FLOAT);
    return turned(rope, b_.node("Mul", {positions, chosen(rope, {1, rotary_dim() / 2})}));
}

void Form::rope_tables() {
    std::vector<Frequencies> all = shape_.rope;
    if (all.empty()) {
        all.push_back({rope_frequencies(shape_)});
        if (variation().frequencies_change_at > 0) {
            all[0].change_at = variation().frequencies_change_at;
            all[0].later = all[0].values;
            for (float& f : all[0].later) f /= 2;
        }
    }
    b_.scope("/model/rotary_emb/");
    for (const Frequencies& rope : all) {
        if (variation().cut_tables)
            tables_.push_back(cut_tables(rope.values));
        else if (is(OnnxForm::kDecomposed) || is(OnnxForm::kFunctions))
            tables_.push_back(computed_tables(rope));
        else if (!options_.as_hugging_face)
            tables_.push_back(stored_tables(rope.values, 1));
        else
            tables_.push_back(is(OnnxForm::kAttention) ? computed_tables(rope)
                                                       : cache_tables(rope));
    }
}

// 1 + beta * log(1 + floor(position / length)) of each token.
void Form::scale_by_position() {
    b_.scope("/model/position_scale/");
    std::string positions = position_ids_;
    if (is(OnnxForm::kGroupQueryAttention)) {
        const auto length_of = [&](const char* input) {
            return b_.node("Gather", {b_.node("Shape", {input}), b_.int_scalar(1)},
                           {{"axis", int64_t{0}}});
        };
        const std::string total = length_of("attention_mask");
        const std::string first = b_.node("Sub", {total, length_of("input_ids")});
        positions = b_.node("Unsqueeze",
                            {b_.node("Range", {first, total, b_.int_scalar(1)}), b_.ints({0})});
    }
    const auto constant = [&](double value) { return b_.floats({static_cast<float>(value)}, {}); };
    std::string y = b_.cast(b_.node("Unsqueeze", {positions, b_.ints({2})}), TensorProto::FLOAT);
    y = b_.node(
        "Floor",
        {b_.node("Div", {y, constant(static_cast<double>(variation().position_scale.length))})});
    y = b_.node("Log", {b_.node("Add", {y, constant(1)})});
    y = b_.node("Mul", {y, constant(variation().position_scale.beta)});
    y = b_.node("Add", {y, constant(1)});
    position_scale_ = b_.is_f32() ? y : b_.cast(y, b_.dtype());
}

}  // namespace cleave::models
