// SPDX-License-Identifier: Apache-2.0
#include "importer/graph/graph.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/ranges.h>

#include "runtime/base/errors.h"
#include "runtime/base/hash.h"

namespace cleave::importer {

int64_t Weight::num_elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
}

int64_t Weight::packed_bytes() const {
    if (gguf && !quantization.rounded_from)
        return num_elements() / gguf_layout(*gguf).elements * gguf_layout(*gguf).bytes;
    if (packing == Packing::kDense) return dtype_bytes(dtype, num_elements());
    CLEAVE_CHECK(shape.size() == 2) << name << ": quantised weights are matrices";
    int64_t block = quantization.block > 0 ? quantization.block : shape[1];
    int64_t blocks = (shape[1] + block - 1) / block;
    // MatMulNBits stores whole blocks even where the last is not full.
    int64_t stored = packing == Packing::kMatMulNBits ? blocks * block : shape[1];
    int64_t bytes = shape[0] * stored * dtype_bits(dtype) / 8;
    bytes += shape[0] * blocks * dtype_bits(quantization.scale_dtype) / 8;
    // A part of a weight has its share of the zero points.
    if (quantization.zero_points.has_data() && quantization.scale_count > 0)
        bytes += static_cast<int64_t>(quantization.zero_points.length) * shape[0] * blocks /
                 quantization.scale_count;
    return bytes;
}

std::string_view op_kind_name(OpKind kind) {
    static constexpr std::array<std::string_view, 12> kNames{
        "embedding",        "rms_norm", "linear", "rope",          "kv_append", "attention",
        "gated_activation", "add",      "scale",  "select_tokens", "opaque",    "tensor"};
    return kNames.at(static_cast<size_t>(kind));
}

std::string onnx_op_type(const Op& op) {
    if (op.kind == OpKind::kTensor) return op.as<TensorAttrs>().op_type;
    const auto& attrs = op.as<OpaqueAttrs>();
    return attrs.domain.empty() ? attrs.op_type : attrs.domain + "." + attrs.op_type;
}

Rows rows_of(const Dim& dim) {
    if (dim.is_static()) return Rows::kNone;
    if (dim.symbol == "num_tokens") return Rows::kTokens;
    return dim.symbol == "num_outputs" ? Rows::kOutputs : Rows::kSequences;
}

Rows rows_of(const Value& value) {
    return value.shape.empty() ? Rows::kNone : rows_of(value.shape.front());
}

namespace {

std::string dims_text(const std::vector<Dim>& dims) {
    std::string text = "[";
    for (size_t i = 0; i < dims.size(); ++i) {
        if (i) text += ", ";
        text += dims[i].is_static() ? std::to_string(dims[i].value) : dims[i].symbol;
    }
    return text + "]";
}

struct AttrsText {
    const Graph& graph;
    std::string operator()(const EmbeddingAttrs& a) const {
        return a.scale == 1.0f ? "" : fmt::format("scale={}", a.scale);
    }
    std::string operator()(const RmsNormAttrs& a) const {
        return fmt::format(
            "epsilon={} group={}{}", static_cast<float>(a.epsilon), a.group,
            a.weight_offset != 0 ? fmt::format(" weight_offset={}", a.weight_offset) : "");
    }
    std::string operator()(const LinearAttrs& a) const { return a.has_bias ? "bias" : ""; }
    std::string operator()(const RopeAttrs& a) const {
        const RopeTable& t = graph.rope_table(a.table);
        std::string table =
            t.frequencies.empty()
                ? "table"
                : fmt::format("f0={} f_last={}", t.frequencies.front(), t.frequencies.back());
        return fmt::format("heads={} head_dim={} rotary_dim={}{} {}{}", a.num_heads, a.head_dim,
                           a.rotary_dim, a.interleaved ? " interleaved" : "", table,
                           t.magnitude != 1.0 ? fmt::format(" magnitude={}", t.magnitude) : "");
    }
    std::string operator()(const KvAppendAttrs& a) const {
        return fmt::format("kv_heads={} head_dim={} v_head_dim={}", a.num_kv_heads, a.head_dim,
                           a.v_head_dim);
    }
    std::string operator()(const AttentionAttrs& a) const {
        std::string text = fmt::format("heads={} kv_heads={} head_dim={} scale={}", a.num_heads,
                                       a.num_kv_heads, a.head_dim, static_cast<float>(a.scale));
        if (a.v_head_dim != a.head_dim) text += fmt::format(" v_head_dim={}", a.v_head_dim);
        if (a.window) text += fmt::format(" window={}", a.window);
        if (a.softcap != 0) text += fmt::format(" softcap={}", a.softcap);
        if (!a.causal) text += " not causal";
        return text;
    }
    std::string operator()(const GatedActivationAttrs& a) const {
        return std::string(activation_name(a.activation));
    }
    std::string operator()(const AddAttrs&) const { return ""; }
    std::string operator()(const ScaleAttrs& a) const {
        return fmt::format("factor={}", a.factor) +
               (a.softcap > 0 ? fmt::format(" softcap={}", a.softcap) : "");
    }
    std::string operator()(const SelectTokensAttrs&) const { return ""; }
    std::string operator()(const OpaqueAttrs& a) const {
        return a.domain.empty() ? a.op_type : a.domain + "." + a.op_type;
    }
    std::string operator()(const TensorAttrs& a) const {
        std::string text = a.op_type;
        for (const TensorOperand& o : a.operands)
            text += fmt::format(" {}:{}[{}]", o.name, o.dtype, fmt::join(o.shape, ", "));
        for (const TensorOperand& o : a.results) text += fmt::format(" -> {}:{}", o.name, o.dtype);
        for (const TensorAttribute& n : a.attributes)
            text += n.reals.empty() ? fmt::format(" {}={}", n.name, fmt::join(n.integers, ","))
                                    : fmt::format(" {}={}", n.name, fmt::join(n.reals, ","));
        return text;
    }
};

std::string weight_text(const Graph& graph, WeightId id) {
    const Weight& w = graph.weight(id);
    std::string shape;
    for (int64_t d : w.shape) shape += (shape.empty() ? "" : "x") + std::to_string(d);
    std::string how =
        w.packing == Packing::kDense
            ? ""
            : fmt::format(" {}-bit block {}", dtype_bits(w.dtype), w.quantization.block);
    return fmt::format("{} {}{}", dtype_name(w.dtype), shape, how);
}

std::string op_text(const Graph& graph, const Op& op) {
    std::string text;
    for (ValueId v : op.outputs)
        text +=
            fmt::format("{}%{} {}", text.empty() ? "" : ", ", v, dims_text(graph.value(v).shape));
    text += fmt::format(" = {} {}(", op.name, op_kind_name(op.kind));
    for (size_t i = 0; i < op.inputs.size(); ++i)
        text += fmt::format("{}%{}", i ? ", " : "", op.inputs[i]);
    text += ")";
    for (WeightId w : op.weights) text += fmt::format(" <{}>", weight_text(graph, w));
    std::string attrs = std::visit(AttrsText{graph}, op.attrs);
    return attrs.empty() ? text : text + " {" + attrs + "}";
}

}  // namespace

std::string to_text(const Graph& graph) {
    std::string text;
    for (ValueId v : graph.inputs)
        text += fmt::format("input %{} {} {}\n", v, graph.value(v).name,
                            dims_text(graph.value(v).shape));
    for (const Op& op : graph.ops) text += op_text(graph, op) + "\n";
    for (ValueId v : graph.outputs)
        text += fmt::format("output %{} {} {}\n", v, graph.value(v).name,
                            dims_text(graph.value(v).shape));
    return text;
}

std::string graph_digest(const Graph& graph) {
    Digest digest;
    digest.add(to_text(graph));
    for (const Weight& w : graph.weights) {
        digest.add(w.name)
            .add(static_cast<int64_t>(w.dtype))
            .add(static_cast<int64_t>(w.data.offset));
        digest.add(static_cast<int64_t>(w.data.length)).add(w.rows.begin).add(w.rows.end);
        digest.add(w.columns.begin).add(w.columns.end).add(static_cast<int64_t>(w.transposed));
    }
    return digest.hex();
}

}  // namespace cleave::importer
