// SPDX-License-Identifier: Apache-2.0
// The codec of the graph.
#include "importer/weights/formats.h"
#include "planner/file/plan_codec.h"

namespace cleave::planner::codec {

using namespace importer;

namespace {

void put(const SourceFile& f, pb::SourceFile* out) {
    out->set_path(f.path);
    out->set_size(f.size);
    out->set_present(f.present);
}
void take(const pb::SourceFile& in, SourceFile& f) { f = {in.path(), in.size(), in.present()}; }

void put(const DataRef& r, pb::DataRef* out) {
    out->set_file(r.file.value);
    out->set_blob(r.blob.value);
    out->set_offset(r.offset);
    out->set_length(r.length);
}
void take(const pb::DataRef& in, DataRef& r) {
    r = {FileId(in.file()), BlobId(in.blob()), in.offset(), in.length()};
}

void put(const Quantization& q, pb::Quantization* out) {
    out->set_block(q.block);
    out->set_axis(q.axis);
    out->set_scale_dtype(static_cast<uint32_t>(q.scale_dtype));
    put(q.scales, out->mutable_scales());
    out->set_scales_transposed(q.scales_transposed);
    out->set_scale_count(q.scale_count);
    put(q.zero_points, out->mutable_zero_points());
    out->set_zero_point_dtype(static_cast<uint32_t>(q.zero_point_dtype));
    out->set_dynamic_activations(q.dynamic_activations);
    if (q.rounded_from) out->set_rounded_from(1 + static_cast<uint32_t>(*q.rounded_from));
}
void take(const pb::Quantization& in, Quantization& q) {
    q.block = in.block();
    q.axis = in.axis();
    codec::take(in.scale_dtype(), q.scale_dtype);
    take(in.scales(), q.scales);
    q.scales_transposed = in.scales_transposed();
    q.scale_count = in.scale_count();
    take(in.zero_points(), q.zero_points);
    codec::take(in.zero_point_dtype(), q.zero_point_dtype);
    q.dynamic_activations = in.dynamic_activations();
    if (in.rounded_from() > 0) {
        q.rounded_from.emplace();
        codec::take(in.rounded_from() - 1, *q.rounded_from);
    }
}

void put(const Weight& w, pb::Weight* out) {
    out->set_name(w.name);
    out->mutable_shape()->Assign(w.shape.begin(), w.shape.end());
    out->set_dtype(static_cast<uint32_t>(w.dtype));
    out->set_packing(static_cast<uint32_t>(w.packing));
    put(w.data, out->mutable_data());
    out->mutable_source_shape()->Assign(w.source_shape.begin(), w.source_shape.end());
    out->set_transposed(w.transposed);
    codec::put(w.rows, out->mutable_rows());
    codec::put(w.columns, out->mutable_columns());
    put(w.quantization, out->mutable_quantization());
    const QuantizedType* type = find_quantized_type(w.dtype);
    if (w.packing != Packing::kDense && type) {
        out->mutable_quantization()->set_bits(type->bits());
        out->mutable_quantization()->set_is_signed(type->is_signed() &&
                                                   !w.quantization.rounded_from);
    }
    out->mutable_initializers()->Assign(w.initializers.begin(), w.initializers.end());
}
void take(const pb::Weight& in, Weight& w) {
    w.name = in.name();
    w.shape.assign(in.shape().begin(), in.shape().end());
    codec::take(in.dtype(), w.dtype);
    codec::take(in.packing(), Packing::kDequantizeLinear, w.packing);
    take(in.data(), w.data);
    w.source_shape.assign(in.source_shape().begin(), in.source_shape().end());
    w.transposed = in.transposed();
    codec::take(in.rows(), w.rows);
    codec::take(in.columns(), w.columns);
    take(in.quantization(), w.quantization);
    w.initializers.assign(in.initializers().begin(), in.initializers().end());
}

void put(const RopeTable& t, pb::RopeTable* out) {
    out->mutable_frequencies()->Assign(t.frequencies.begin(), t.frequencies.end());
    out->set_magnitude(t.magnitude);
    out->set_cos(t.cos.value);
    out->set_sin(t.sin.value);
    out->set_rotary_dim(t.rotary_dim);
    out->set_max_positions(t.max_positions);
    out->set_name(t.name);
}
void take(const pb::RopeTable& in, RopeTable& t) {
    t.frequencies.assign(in.frequencies().begin(), in.frequencies().end());
    t.magnitude = in.magnitude();
    t.cos = WeightId(in.cos());
    t.sin = WeightId(in.sin());
    t.rotary_dim = in.rotary_dim();
    t.max_positions = in.max_positions();
    t.name = in.name();
}

void put(const Dim& d, pb::Dim* out) {
    out->set_value(d.value);
    out->set_symbol(d.symbol);
}
void take(const pb::Dim& in, Dim& d) {
    d.value = in.value();
    d.symbol = in.symbol();
}

void put(const Value& v, pb::Value* out) {
    out->set_name(v.name);
    out->set_kind(static_cast<uint32_t>(v.kind));
    for (const Dim& d : v.shape) put(d, out->add_shape());
    out->set_dtype(static_cast<uint32_t>(v.dtype));
}
void take(const pb::Value& in, Value& v) {
    v.name = in.name();
    codec::take(in.kind(), ValueKind::kTensor, v.kind);
    for (const pb::Dim& d : in.shape()) take(d, v.shape.emplace_back());
    codec::take(in.dtype(), v.dtype);
}

void put(const TensorOperand& o, pb::TensorOperand* out) {
    out->set_name(o.name);
    out->set_index(o.index);
    out->set_dtype(static_cast<uint32_t>(o.dtype));
    out->mutable_shape()->Assign(o.shape.begin(), o.shape.end());
}
void take(const pb::TensorOperand& in, TensorOperand& o) {
    o.name = in.name();
    o.index = in.index();
    codec::take(in.dtype(), o.dtype);
    o.shape.assign(in.shape().begin(), in.shape().end());
}

TensorAttrs take_tensor(const pb::TensorAttrs& in) {
    TensorAttrs a;
    a.op_type = in.op_type();
    a.flops = in.flops();
    for (const auto& item : in.operands()) take(item, a.operands.emplace_back());
    for (const auto& item : in.results()) take(item, a.results.emplace_back());
    for (const auto& item : in.attributes())
        a.attributes.push_back({item.name(),
                                {item.integers().begin(), item.integers().end()},
                                {item.reals().begin(), item.reals().end()}});
    return a;
}

struct PutAttrs {
    pb::Op* out;
    void operator()(const EmbeddingAttrs& a) const { out->mutable_embedding()->set_scale(a.scale); }
    void operator()(const RmsNormAttrs& a) const {
        auto* to = out->mutable_rms_norm();
        to->set_epsilon(a.epsilon);
        to->set_weight_offset(a.weight_offset);
        to->set_group(a.group);
    }
    void operator()(const LinearAttrs& a) const { out->mutable_linear()->set_has_bias(a.has_bias); }
    void operator()(const RopeAttrs& a) const {
        auto* to = out->mutable_rope();
        to->set_num_heads(a.num_heads);
        to->set_head_dim(a.head_dim);
        to->set_rotary_dim(a.rotary_dim);
        to->set_interleaved(a.interleaved);
        to->set_table(a.table.value);
    }
    void operator()(const KvAppendAttrs& a) const {
        auto* to = out->mutable_kv_append();
        to->set_num_kv_heads(a.num_kv_heads);
        to->set_head_dim(a.head_dim);
        to->set_v_head_dim(a.v_head_dim);
    }
    void operator()(const AttentionAttrs& a) const {
        auto* to = out->mutable_attention();
        to->set_num_heads(a.num_heads);
        to->set_num_kv_heads(a.num_kv_heads);
        to->set_head_dim(a.head_dim);
        to->set_v_head_dim(a.v_head_dim);
        to->set_scale(a.scale);
        to->set_window(a.window);
        to->set_softcap(a.softcap);
        to->set_causal(a.causal);
    }
    void operator()(const GatedActivationAttrs& a) const {
        out->mutable_gated_activation()->set_activation(static_cast<uint32_t>(a.activation));
    }
    void operator()(const AddAttrs&) const { out->mutable_add(); }
    void operator()(const ScaleAttrs& a) const {
        out->mutable_scale()->set_factor(a.factor);
        out->mutable_scale()->set_softcap(a.softcap);
    }
    void operator()(const SelectTokensAttrs&) const { out->mutable_select_tokens(); }
    void operator()(const OpaqueAttrs& a) const {
        auto* to = out->mutable_opaque();
        to->set_domain(a.domain);
        to->set_op_type(a.op_type);
        to->set_flops(a.flops);
        to->set_bytes(a.bytes);
        to->set_reason(a.reason);
    }
    void operator()(const TensorAttrs& a) const {
        auto* to = out->mutable_tensor();
        to->set_op_type(a.op_type);
        to->set_flops(a.flops);
        for (const TensorOperand& o : a.operands) put(o, to->add_operands());
        for (const TensorOperand& o : a.results) put(o, to->add_results());
        for (const TensorAttribute& n : a.attributes) {
            auto* attribute = to->add_attributes();
            attribute->set_name(n.name);
            attribute->mutable_integers()->Assign(n.integers.begin(), n.integers.end());
            attribute->mutable_reals()->Assign(n.reals.begin(), n.reals.end());
        }
    }
};

OpAttrs take_attrs(const pb::Op& in) {
    switch (in.attrs_case()) {
        case pb::Op::kEmbedding: return EmbeddingAttrs{in.embedding().scale()};
        case pb::Op::kRmsNorm: {
            const auto& a = in.rms_norm();
            return RmsNormAttrs{a.epsilon(), a.weight_offset(), a.group()};
        }
        case pb::Op::kLinear: return LinearAttrs{in.linear().has_bias()};
        case pb::Op::kRope: {
            const auto& a = in.rope();
            return RopeAttrs{a.num_heads(), a.head_dim(), a.rotary_dim(), a.interleaved(),
                             RopeTableId(a.table())};
        }
        case pb::Op::kKvAppend: {
            const auto& a = in.kv_append();
            return KvAppendAttrs{a.num_kv_heads(), a.head_dim(), a.v_head_dim()};
        }
        case pb::Op::kAttention: {
            const auto& a = in.attention();
            return AttentionAttrs{a.num_heads(), a.num_kv_heads(), a.head_dim(), a.v_head_dim(),
                                  a.scale(),     a.window(),       a.softcap(),  a.causal()};
        }
        case pb::Op::kGatedActivation: {
            GatedActivationAttrs a;
            codec::take(in.gated_activation().activation(), kLastActivation, a.activation);
            return a;
        }
        case pb::Op::kAdd: return AddAttrs{};
        case pb::Op::kScale: return ScaleAttrs{in.scale().factor(), in.scale().softcap()};
        case pb::Op::kSelectTokens: return SelectTokensAttrs{};
        case pb::Op::kOpaque: {
            const auto& a = in.opaque();
            return OpaqueAttrs{a.domain(), a.op_type(), a.flops(), a.bytes(), a.reason()};
        }
        case pb::Op::kTensor: return take_tensor(in.tensor());
        case pb::Op::ATTRS_NOT_SET: break;
    }
    throw UserError("operator {} has no attributes", in.name());
}

void put(const Op& op, pb::Op* out) {
    out->set_kind(static_cast<uint32_t>(op.kind));
    out->set_name(op.name);
    out->set_layer(op.layer);
    put_ids(op.inputs, out->mutable_inputs());
    put_ids(op.outputs, out->mutable_outputs());
    put_ids(op.weights, out->mutable_weights());
    out->mutable_onnx_nodes()->Assign(op.onnx_nodes.begin(), op.onnx_nodes.end());
    std::visit(PutAttrs{out}, op.attrs);
}
void take(const pb::Op& in, Op& op) {
    codec::take(in.kind(), OpKind::kTensor, op.kind);
    op.name = in.name();
    op.layer = in.layer();
    take_ids(in.inputs(), op.inputs);
    take_ids(in.outputs(), op.outputs);
    take_ids(in.weights(), op.weights);
    op.onnx_nodes.assign(in.onnx_nodes().begin(), in.onnx_nodes().end());
    op.attrs = take_attrs(in);
}

void put(const ModelConfig& c, pb::ModelConfig* out) {
    out->set_model_type(c.model_type);
    out->set_vocab_size(c.vocab_size);
    out->set_hidden_size(c.hidden_size);
    out->set_intermediate_size(c.intermediate_size);
    out->set_num_layers(c.num_layers);
    out->set_num_heads(c.num_heads);
    out->set_num_kv_heads(c.num_kv_heads);
    out->set_head_dim(c.head_dim);
    out->set_max_positions(c.max_positions);
    out->set_rms_norm_eps(c.rms_norm_eps);
    out->set_rope_theta(c.rope_theta);
    out->set_tied_embeddings(c.tied_embeddings);
}
void take(const pb::ModelConfig& in, ModelConfig& c) {
    c.model_type = in.model_type();
    c.vocab_size = in.vocab_size();
    c.hidden_size = in.hidden_size();
    c.intermediate_size = in.intermediate_size();
    c.num_layers = in.num_layers();
    c.num_heads = in.num_heads();
    c.num_kv_heads = in.num_kv_heads();
    c.head_dim = in.head_dim();
    c.max_positions = in.max_positions();
    c.rms_norm_eps = in.rms_norm_eps();
    c.rope_theta = in.rope_theta();
    c.tied_embeddings = in.tied_embeddings();
}

}  // namespace

void put(const Graph& g, pb::Graph* out) {
    out->set_name(g.name);
    out->set_path(g.path);
    out->set_exporter(g.exporter);
    out->set_opset(g.opset);
    put(g.config, out->mutable_config());
    auto* interface = out->mutable_interface();
    interface->set_has_past(g.interface.has_past);
    interface->set_has_position_ids(g.interface.has_position_ids);
    interface->set_has_attention_mask(g.interface.has_attention_mask);
    interface->set_assumes_right_padding(g.interface.assumes_right_padding);
    out->set_dtype(static_cast<uint32_t>(g.dtype));
    for (const auto& item : g.ops) put(item, out->add_ops());
    for (const auto& item : g.values) put(item, out->add_values());
    for (const auto& item : g.weights) put(item, out->add_weights());
    for (const auto& item : g.rope_tables) put(item, out->add_rope_tables());
    for (const auto& item : g.files) put(item, out->add_files());
    for (const auto& blob : g.blobs) out->add_blobs(blob.data(), blob.size());
    put_ids(g.inputs, out->mutable_inputs());
    put_ids(g.outputs, out->mutable_outputs());
    out->mutable_notes()->Assign(g.notes.begin(), g.notes.end());
}

void take(const pb::Graph& in, Graph& g) {
    g.name = in.name();
    g.path = in.path();
    g.exporter = in.exporter();
    g.opset = in.opset();
    take(in.config(), g.config);
    g.interface = {in.interface().has_past(), in.interface().has_position_ids(),
                   in.interface().has_attention_mask(), in.interface().assumes_right_padding()};
    codec::take(in.dtype(), g.dtype);
    for (const auto& item : in.ops()) take(item, g.ops.emplace_back());
    for (const auto& item : in.values()) take(item, g.values.emplace_back());
    for (const auto& item : in.weights()) take(item, g.weights.emplace_back());
    for (const auto& item : in.rope_tables()) take(item, g.rope_tables.emplace_back());
    for (const auto& item : in.files()) take(item, g.files.emplace_back());
    for (const std::string& blob : in.blobs()) {
        const auto* bytes = reinterpret_cast<const std::byte*>(blob.data());
        g.blobs.emplace_back(bytes, bytes + blob.size());
    }
    take_ids(in.inputs(), g.inputs);
    take_ids(in.outputs(), g.outputs);
    g.notes.assign(in.notes().begin(), in.notes().end());
}

}  // namespace cleave::planner::codec
