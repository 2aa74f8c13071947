// SPDX-License-Identifier: Apache-2.0
// What the matrix products and the attention of hosts and GPUs share: operands in Config, and the
// parameters in their order. `Stub` (host/stub.h, gpu/stub.h) has pointers and the epilogue.
#pragma once

#include <string>

#include <fmt/format.h>

#include "codegen/text/stub_writer.h"

namespace cleave::codegen {

inline void optional_norm_arg(StubWriter& w, const std::optional<NormSpec>& norm,
                              std::string_view name) {
    if (norm) w.arg(element_pointer(norm->weight, name), name);
}

template <class Stub>
void write_operands(const LinearSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    const char* rows = s.count == RowCount::kTokens ? "num_tokens" : "num_outputs";
    w.note(fmt::format("shapes: x [{}, {}], weight [{}, {}], out [{}, {}]", rows, s.in, s.out, s.in,
                       rows, s.out));
    w.note(fmt::format("dtype: weight {}, activations {}, sums f32", describe(s.weight),
                       stub.activation_type()));
    w.weight("Weight", s.weight, s.in, "weight");
    w.operand("kBias", "Bias", s.bias);
    write_norm(w, s.norm, Stub::kEpsilonType);
    w.constant("kScaled", s.scale.has_value());
    w.real("float", "kScale", s.scale.value_or(1.0));
    w.real("float", "kSoftcap", s.softcap);
    w.constant("kResidual", s.residual.has_value());
    w.view("Residual", s.residual.value_or(View{}));
}

template <class Stub>
void write_parameters(const LinearSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    w.arg(stub.in_pointer(s.prepared, s.weight), "x");
    optional_norm_arg(w, s.norm, "norm");
    w.arg(stub.matrix(""), "weight");
    optional_arg(w, s.bias, "bias");
    if (s.residual) w.arg(stub.x_pointer(), "residual");
    if (s.select) w.arg("const i32*", "rows");
    w.arg(s.logits ? "float*" : stub.out_pointer(), "out");
    w.arg("i64", "num_tokens");
    if (s.weight.dynamic()) w.arg("i64", "all_tokens");
    stub.epilogue(s.epilogue);
}

template <class Stub>
void write_operands(const GateUpSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    w.note(fmt::format("shapes: x [num_tokens, {}], gate and up [{}, {}], out [num_tokens, {}]",
                       s.in, s.out, s.in, s.out));
    w.operand("kGateBias", "GateBias", s.gate_bias);
    w.operand("kUpBias", "UpBias", s.up_bias);
    write_norm(w, s.norm, Stub::kEpsilonType);
    w.activation("kActivation", s.activation);
}

template <class Stub>
void write_parameters(const GateUpSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    w.arg(stub.in_pointer(s.prepared, s.gate), "x");
    optional_norm_arg(w, s.norm, "norm");
    w.arg(stub.matrix("Gate"), "gate");
    optional_arg(w, s.gate_bias, "gate_bias");
    w.arg(stub.matrix("Up"), "up");
    optional_arg(w, s.up_bias, "up_bias");
    w.arg(stub.out_pointer(), "out");
    w.arg("i64", "num_tokens");
    stub.epilogue(s.epilogue);
}

template <class Stub>
void write_operands(const QkvSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    w.operand("kQBias", "QBias", s.q_bias);
    w.operand("kKBias", "KBias", s.k_bias);
    w.operand("kVBias", "VBias", s.v_bias);
    write_norm(w, s.norm, Stub::kEpsilonType);
    write_norm(w, s.q_norm, Stub::kEpsilonType, "Q");
    write_norm(w, s.k_norm, Stub::kEpsilonType, "K");
}

template <class Stub>
void write_parameters(const QkvSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    w.arg(stub.in_pointer(s.prepared, s.q), "x");
    optional_norm_arg(w, s.norm, "norm");
    w.arg(stub.matrix("Q"), "q_weight");
    optional_arg(w, s.q_bias, "q_bias");
    w.arg(stub.matrix("K"), "k_weight");
    optional_arg(w, s.k_bias, "k_bias");
    w.arg(stub.matrix("V"), "v_weight");
    optional_arg(w, s.v_bias, "v_bias");
    optional_norm_arg(w, s.q_norm, "q_norm");
    optional_norm_arg(w, s.k_norm, "k_norm");
    if (s.q_rope) w.arg("const float*", "q_rope");
    if (s.k_rope) w.arg("const float*", "k_rope");
    w.arg(stub.out_pointer(), "q_out");
    w.arg("Config::Kv*", "kv");
    write_block_table(w);
    w.arg("i64", "rope_context");
    for (const char* array : {"positions", "slots"}) w.arg("const i32*", array);
    w.arg("i64", "num_tokens");
}

// Query heads are counted from the slab's first group, so that equal shards of different devices
// share their kernel.
template <class Stub>
void write_operands(const AttentionSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    const int64_t heads = s.heads.size();
    w.note(fmt::format(
        "shapes: q [num_tokens, {} x {}], out [num_tokens, {} x {}], {} query heads for a KV head",
        heads, s.slab.head_dim, heads, s.slab.v_head_dim, s.group));
    w.note(fmt::format("dtype: KV cache {}, activations {}, sums f32", s.slab.dtype,
                       stub.activation_type()));
    write_slab(w, s.slab, 0);
    w.constant("kQHeads", heads);
    w.constant("kFirstHead", s.heads.begin - s.slab.first_head * s.group);
    w.constant("kGroup", s.group);
    w.real("float", "kScale", s.scale);
    w.constant("kWindow", s.window);
    w.real("float", "kSoftcap", s.softcap);
}

// All but the last, num_tokens.
template <class Stub>
void write_parameters(const AttentionSpec&, Stub& stub) {
    StubWriter& w = stub.writer;
    w.arg(stub.x_pointer(), "q");
    w.arg("const Config::Kv*", "kv");
    write_block_table(w);
    w.arg(stub.out_pointer(), "out");
    for (const char* array : {"positions", "slots"}) w.arg("const i32*", array);
}

}  // namespace cleave::codegen
