// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/graph_writer.h"

#include <cmath>
#include <filesystem>

#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {

GraphWriter::GraphWriter(Recovery& r, Model& model) : r_(r), model_(model) {
    g_.path = model.path;
    g_.name = std::filesystem::path(model.path).filename().string();
    g_.opset = model.opset;
    g_.files = model.files;
    g_.values.push_back({"token_ids", ValueKind::kTokenIds, {Dim("num_tokens")}, DType::kInt32});
    g_.inputs.push_back(ValueId(0));
}

void GraphWriter::begin_layer(int layer) { begin_layer(layer, fmt::format("layers.{}.", layer)); }

void GraphWriter::begin_layer(int layer, const std::string& prefix) {
    layer_ = layer;
    prefix_ = prefix;
}

Op& GraphWriter::op(OpKind kind, const std::string& name, TermId term, OpAttrs attrs,
                    std::vector<ValueId> inputs) {
    Op op{kind, prefix_ + name, layer_, std::move(attrs), std::move(inputs), {}, {}, {}};
    if (term.valid())
        for (int n : r_.term(term).nodes) {
            const Node& node = model_.nodes[n];
            std::string label = node.name;
            for (Ref out : node.out)
                if (label.empty() && out != kNone) label = model_.values[out].name;
            op.onnx_nodes.push_back(label);
        }
    g_.ops.push_back(std::move(op));
    return g_.ops.back();
}

ValueId GraphWriter::output(Op& op, ValueKind kind, std::vector<Dim> shape) {
    const DType dtype = kind == ValueKind::kLogits ? DType::kF32 : g_.dtype;
    g_.values.push_back({op.name, kind, std::move(shape), dtype});
    op.outputs.push_back(ValueId(g_.values.size() - 1));
    return op.outputs[0];
}

DataRef GraphWriter::data(const DataRef& of_model) {
    DataRef ref = of_model;
    if (!ref.blob.valid()) return ref;
    auto [it, inserted] = blobs_.emplace(ref.blob, BlobId(g_.blobs.size()));
    if (inserted) g_.blobs.push_back(model_.blobs[ref.blob.index()]);
    ref.blob = it->second;
    return ref;
}

// The constant as a matrix or vector: MatMulNBits stores [out, blocks, bytes] of a [out, in]
// matrix.
std::vector<int64_t> GraphWriter::source_shape(const WeightView& view) const {
    if (view.packing == Packing::kMatMulNBits)
        return view.transposed ? std::vector<int64_t>{view.source_rows, view.source_columns}
                               : std::vector<int64_t>{view.source_columns, view.source_rows};
    std::vector<int64_t> dims = model_.constants[view.constant].dims;
    while (dims.size() > (view.vector ? 1u : 2u) && dims[0] == 1) dims.erase(dims.begin());
    return dims;
}

// Scales of a DequantizeLinear as the Graph describes them: blocks along the input features.
void GraphWriter::orient_scales(const WeightView& view, Weight& w) const {
    Quantization& q = w.quantization;
    if (w.packing != Packing::kDequantizeLinear || q.scale_count == 1) return;
    const int axis = w.transposed ? 1 - view.quantization.axis : view.quantization.axis;
    const bool per_row = q.block == 0 && axis == 0, blocked = q.block > 0 && axis == 1;
    if (!per_row && !blocked)
        throw UserError(
            "{}: the scales of '{}' run along the {} features; scales of each output feature, and "
            "of "
            "blocks of input features, are supported",
            model_.path, w.name, axis == 0 ? "output" : "input");
    q.axis = 1;
    q.scales_transposed = blocked && w.transposed;
}

WeightId GraphWriter::weight(const WeightView& view, bool linear) {
    const Constant& c = model_.constants[view.constant];
    Weight w;
    w.name = c.name;
    w.dtype = view.packing == Packing::kDense ? *dtype_of(c.elem_type) : view.dtype;
    w.packing = view.packing;
    w.source_shape = source_shape(view);
    w.transposed = view.transposed != linear;
    w.rows = linear ? view.columns : view.rows;
    w.columns = view.vector ? Range{} : linear ? view.rows : view.columns;
    w.shape = {w.rows.size()};
    if (!view.vector) w.shape.push_back(w.columns.size());
    w.initializers = {c.name};
    for (int other : view.other_constants) w.initializers.push_back(model_.constants[other].name);
    w.quantization = view.quantization;
    orient_scales(view, w);
    if (w.num_elements() != product(w.source_shape)) {
        if (w.rows.size() != (w.transposed ? w.source_shape.back() : w.source_shape[0]))
            w.name += fmt::format("[{}:{}]", w.rows.begin, w.rows.end);
        else
            w.name += fmt::format("[:,{}:{}]", w.columns.begin, w.columns.end);
    }
    std::string key = fmt::format("{} {} {}", view.constant, w.transposed, w.name);
    // The scales are part of what a quantised weight is.
    for (int other : view.other_constants) key += fmt::format(" {}", other);
    if (auto found = weights_.find(key); found != weights_.end()) return found->second;
    w.data = data(c.data);
    w.quantization.scales = data(w.quantization.scales);
    w.quantization.zero_points = data(w.quantization.zero_points);
    g_.weights.push_back(std::move(w));
    return weights_[key] = WeightId(g_.weights.size() - 1);
}

RopeTableId GraphWriter::table(RopeTableId id) {
    if (auto found = tables_.find(id); found != tables_.end()) return found->second;
    const RopeTables::Entry& entry = r_.rope_tables[id];
    RopeTable t = entry.table;
    t.name = fmt::format("rope{}", tables_.size());
    if (t.frequencies.empty()) {
        t.cos = weight(entry.cos, false);
        t.sin = weight(entry.sin, false);
    }
    g_.rope_tables.push_back(std::move(t));
    return tables_[id] = RopeTableId(g_.rope_tables.size() - 1);
}

ValueId GraphWriter::embedding(TermId id) {
    const Term& t = r_.term(id);
    g_.dtype = *dtype_of(model_.constants[t.weight.constant].elem_type);
    if (!is_floating(g_.dtype) && t.weight.packing == Packing::kDense)
        throw UserError("{}: the embedding '{}' holds integers that nothing dequantises",
                        model_.path, model_.constants[t.weight.constant].name);
    if (!is_floating(g_.dtype)) g_.dtype = t.weight.quantization.scale_dtype;
    if (!is_floating(g_.dtype)) g_.dtype = DType::kF32;  // scales that no activation has
    Op& o = op(OpKind::kEmbedding, "embedding", id, EmbeddingAttrs{static_cast<float>(t.scale)},
               {ValueId(0)});
    o.weights = {weight(t.weight, false)};
    return activation(o, t.features);
}

ValueId GraphWriter::norm(const std::string& name, TermId id, ValueId x) {
    const Term& t = r_.term(id);
    Op& o = op(OpKind::kRmsNorm, name, id, RmsNormAttrs{t.epsilon, t.weight.added, t.group}, {x});
    o.weights = {weight(t.weight, false)};
    const bool selected = rows_of(g_.value(x)) == Rows::kOutputs;
    return output(o, ValueKind::kActivation,
                  {Dim(selected ? "num_outputs" : "num_tokens"), Dim(t.features)});
}

ValueId GraphWriter::linear(const std::string& name, TermId id, ValueId x) {
    const Term& t = r_.term(id);
    Op& o = op(OpKind::kLinear, name, id, LinearAttrs{t.bias.has_value()}, {x});
    o.weights = {weight(t.weight, true)};
    if (t.bias) o.weights.push_back(weight(*t.bias, false));
    return activation(o, t.features);
}

ValueId GraphWriter::rope(const std::string& name, TermId id, ValueId x) {
    const Term& t = r_.term(id);
    RopeAttrs attrs = t.rope;
    attrs.table = table(attrs.table);
    return activation(op(OpKind::kRope, name, id, attrs, {x}), t.features);
}

ValueId GraphWriter::kv_append(TermId attention, TermId k_cache, TermId v_cache, ValueId k,
                               ValueId v) {
    const AttentionAttrs& a = r_.term(attention).attention;
    Op& o = op(OpKind::kKvAppend, "kv_append", k_cache,
               KvAppendAttrs{a.num_kv_heads, a.head_dim, a.v_head_dim}, {k, v});
    for (int n : r_.term(v_cache).nodes) o.onnx_nodes.push_back(model_.nodes[n].name);
    return output(
        o, ValueKind::kKvState,
        {Dim("num_sequences"), Dim("context"), Dim(2), Dim(a.num_kv_heads), Dim(a.head_dim)});
}

ValueId GraphWriter::attention(TermId id, ValueId q, ValueId state) {
    const Term& t = r_.term(id);
    return activation(op(OpKind::kAttention, "attention", id, t.attention, {q, state}), t.features);
}

ValueId GraphWriter::gated(TermId id, ValueId gate, ValueId up) {
    const Term& t = r_.term(id);
    return activation(op(OpKind::kGatedActivation, "gated_activation", id,
                         GatedActivationAttrs{t.activation}, {gate, up}),
                      t.features);
}

ValueId GraphWriter::add(const std::string& name, TermId id, ValueId a, ValueId b) {
    return activation(op(OpKind::kAdd, name, id, AddAttrs{}, {a, b}), r_.term(id).features);
}

ValueId GraphWriter::scale(const std::string& name, TermId id, ValueId x) {
    return activation(op(OpKind::kScale, name, id, ScaleAttrs{r_.term(id).scale}, {x}),
                      r_.term(id).features);
}

ValueId GraphWriter::select(TermId id, ValueId x) {
    const Dim features = g_.value(x).shape.back();
    return output(op(OpKind::kSelectTokens, "select_tokens", id, SelectTokensAttrs{}, {x}),
                  ValueKind::kActivation, {Dim("num_outputs"), features});
}

void GraphWriter::logits(TermId id, TermId scale, ValueId x) {
    const Term& t = r_.term(id);
    Op& o = op(OpKind::kLinear, "lm_head", id, LinearAttrs{t.bias.has_value()}, {x});
    o.weights = {weight(t.weight, true)};
    if (t.bias) o.weights.push_back(weight(*t.bias, false));
    const std::vector<Dim> shape{Dim("num_outputs"), Dim(t.features)};
    ValueId y = output(o, ValueKind::kLogits, shape);
    if (scale.valid()) {
        const Term& s = r_.term(scale);
        y = output(op(OpKind::kScale, "logits_scale", scale, ScaleAttrs{s.scale, s.softcap}, {y}),
                   ValueKind::kLogits, shape);
    }
    g_.outputs.push_back(y);
    g_.values.back().name = "logits";
}

void GraphWriter::fill_config() {
    ModelConfig& c = g_.config;
    for (const Op& o : g_.ops) {
        if (o.kind == OpKind::kEmbedding) {
            c.vocab_size = g_.weight(o.weights[0]).shape[0];
            c.hidden_size = g_.weight(o.weights[0]).shape[1];
        } else if (o.kind == OpKind::kAttention) {
            const auto& a = o.as<AttentionAttrs>();
            c.num_heads = a.num_heads;
            c.num_kv_heads = a.num_kv_heads;
            c.head_dim = a.head_dim;
        } else if (o.kind == OpKind::kGatedActivation) {
            c.intermediate_size = g_.value(o.outputs[0]).shape[1].value;
        } else if (o.kind == OpKind::kRmsNorm) {
            c.rms_norm_eps = o.as<RmsNormAttrs>().epsilon;
        }
    }
    c.num_layers = layer_;
    const Op& head =
        g_.ops.back().kind == OpKind::kScale ? g_.ops[g_.ops.size() - 2] : g_.ops.back();
    c.tied_embeddings = g_.weight(g_.ops.front().weights[0]).initializers[0] ==
                        g_.weight(head.weights[0]).initializers[0];
    for (const RopeTable& t : g_.rope_tables) {
        c.max_positions = t.max_positions;
        // frequencies[i] = theta^(-2i / rotary_dim), unless they were rescaled.
        const size_t last = t.frequencies.size() - 1;
        if (t.frequencies.size() < 2 || t.frequencies[0] != 1.0f) continue;
        const double theta = std::pow(t.frequencies[1], -static_cast<double>(t.rotary_dim) / 2.0);
        const double expected =
            std::pow(theta, -2.0 * static_cast<double>(last) / static_cast<double>(t.rotary_dim));
        if (std::fabs(t.frequencies[last] / expected - 1.0) < 1e-4)
            c.rope_theta = std::round(theta * 10) / 10;
    }
}

void GraphWriter::limit_context(std::vector<std::string>& notes) {
    const auto limit = [&](int64_t longest, const std::string& reason) {
        if (longest == 0) return;
        if (g_.rope_tables.empty())
            throw UserError("{}: {}, and nothing in the file limits its context", model_.path,
                            reason);
        for (RopeTable& t : g_.rope_tables)
            t.max_positions = t.max_positions > 0 ? std::min(t.max_positions, longest) : longest;
        notes.push_back(reason + ", which limits the context");
    };
    const int64_t checked = r_.longest_context, alike = r_.scaled_alike;
    limit(checked, fmt::format("the attention mask was checked for {} tokens only (export the "
                               "model with a cache: that has no such limit)",
                               checked));
    limit(alike, fmt::format("from position {} on it scales queries by another factor", alike));
}

Graph GraphWriter::finish(std::vector<std::string> notes) {
    limit_context(notes);
    fill_config();
    for (size_t i = 0; i < r_.roles.size(); ++i) {
        g_.interface.has_past |= r_.roles[i] == InputRole::kPast;
        g_.interface.has_position_ids |= r_.roles[i] == InputRole::kPositionIds;
        g_.interface.has_attention_mask |= r_.roles[i] == InputRole::kAttentionMask;
    }
    g_.interface.assumes_right_padding = r_.assumes_right_padding;
    size_t recovered = 0;
    for (const Op& o : g_.ops) recovered += o.onnx_nodes.size();
    notes.push_back(fmt::format(
        "{} nodes read; {} of them became {} operators, the rest computed shapes, positions "
        "and masks",
        model_.nodes.size(), recovered, g_.ops.size()));
    g_.notes = std::move(notes);
    return std::move(g_);
}

}  // namespace cleave::importer::from_onnx
