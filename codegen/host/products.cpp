// SPDX-License-Identifier: Apache-2.0
// Specs of matrix products -> Kernels: linear, gate and up, q, k and v.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/host/stub.h"
#include "codegen/lower/epilogue.h"
#include "planner/tiles/host.h"
#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::codegen {

namespace {

// The plan's tile, or the planner's choice where there is none.
int64_t block_tokens(int64_t depth, const HostTarget& target) {
    return target.tile.tokens > 0 ? target.tile.tokens : planner::host_tokens(depth);
}

int64_t item_rows(int64_t out, const HostTarget& target) {
    return target.tile.rows > 0 ? target.tile.rows : planner::host_rows(out, target.threads);
}

// Weights that read the same x quantise it alike, or not at all.
void check_same_activations(bool first, bool second) {
    if (first != second)
        throw UserError(
            "of the products that share an input, some quantise it (MatMulInteger) and some do "
            "not: "
            "host kernels compute all or none of them so; export the layer's matrices alike");
}

void write_rope(StubWriter& w, std::string_view prefix, const std::optional<RopeSpec>& rope) {
    w.constant(fmt::format("k{}Rotary", prefix), rope ? rope->rotary : 0);
    w.constant(fmt::format("k{}Interleaved", prefix), rope && rope->interleaved);
}

}  // namespace

Kernel make_product(const LinearSpec& s, HostStub& stub) {
    StubWriter& w = stub.writer;
    int64_t rows = item_rows(s.out, stub.target), tokens = block_tokens(s.in, stub.target);
    stub.launch.grid[0] = Extent{ceil_div(s.out, rows)};
    stub.launch.shared_bytes = planner::host_scratch_bytes(s.in, tokens, rows, 1);
    w.note(fmt::format("shapes: x [{}, {}], weight [{}, {}], out [{}, {}]",
                       s.count == RowCount::kTokens ? "num_tokens" : "num_outputs", s.in, s.out,
                       s.in, s.count == RowCount::kTokens ? "num_tokens" : "num_outputs", s.out));
    w.note(fmt::format("dtype: weight {}, activations f32, sums f32", describe(s.weight)));
    w.constant("kIn", s.in);
    w.constant("kOut", s.out);
    w.constant("kItemRows", rows);
    w.constant("kTokens", tokens);
    w.weight("Weight", s.weight, s.in, "weight");
    w.operand("kBias", "Bias", s.bias);
    write_norm(w, s.norm, "double");
    w.constant("kScaled", s.scale.has_value());
    w.real("float", "kScale", s.scale.value_or(1.0));
    w.real("float", "kSoftcap", s.softcap);
    w.constant("kResidual", s.residual.has_value());
    w.view("Residual", s.residual.value_or(View{}));
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    w.arg("const float*", "x");
    if (s.norm) w.arg(element_pointer(s.norm->weight, "norm"), "norm");
    w.arg("const Config::Weight*", "weight");
    optional_arg(w, s.bias, "bias");
    if (s.residual) w.arg("const float*", "residual");
    if (s.select) w.arg("const i32*", "rows");
    w.arg("float*", "out");
    w.arg("i64", "num_tokens");
    if (s.weight.dynamic()) w.arg("i64", "all_tokens");
    write_host_epilogue(w, s.epilogue);
    return stub.finish("host/linear.h", "linear", "LinearArgs");
}

Kernel make_product(const GateUpSpec& s, HostStub& stub) {
    check_same_activations(s.gate.dynamic(), s.up.dynamic());
    StubWriter& w = stub.writer;
    int64_t rows = item_rows(s.out, stub.target), tokens = block_tokens(s.in, stub.target);
    stub.launch.grid[0] = Extent{ceil_div(s.out, rows)};
    stub.launch.shared_bytes = planner::host_scratch_bytes(s.in, tokens, rows, 2);
    w.note(fmt::format("shapes: x [num_tokens, {}], gate and up [{}, {}], out [num_tokens, {}]",
                       s.in, s.out, s.in, s.out));
    w.note(fmt::format("dtype: gate {}, up {}, activations f32, sums f32", describe(s.gate),
                       describe(s.up)));
    w.constant("kIn", s.in);
    w.constant("kOut", s.out);
    w.constant("kItemRows", rows);
    w.constant("kTokens", tokens);
    w.weight("GateWeight", s.gate, s.in, "gate");
    w.weight("UpWeight", s.up, s.in, "up");
    w.operand("kGateBias", "GateBias", s.gate_bias);
    w.operand("kUpBias", "UpBias", s.up_bias);
    write_norm(w, s.norm, "double");
    w.activation("kActivation", s.activation);
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    w.arg("const float*", "x");
    if (s.norm) w.arg(element_pointer(s.norm->weight, "norm"), "norm");
    w.arg("const Config::GateWeight*", "gate");
    optional_arg(w, s.gate_bias, "gate_bias");
    w.arg("const Config::UpWeight*", "up");
    optional_arg(w, s.up_bias, "up_bias");
    w.arg("float*", "out");
    w.arg("i64", "num_tokens");
    write_host_epilogue(w, s.epilogue);
    return stub.finish("host/gate_up.h", "gate_up", "GateUpArgs");
}

Kernel make_product(const QkvSpec& s, HostStub& stub) {
    check_same_activations(s.q.dynamic(), s.k.dynamic());
    check_same_activations(s.q.dynamic(), s.v.dynamic());
    StubWriter& w = stub.writer;
    int64_t tokens = block_tokens(s.in, stub.target), kv_heads = s.kv_heads.size();
    stub.launch.grid[0] = Extent{s.q_heads + 2 * kv_heads};
    stub.launch.shared_bytes =
        planner::host_scratch_bytes(s.in, tokens, std::max(s.slab.head_dim, s.slab.v_head_dim), 1);
    w.note(
        fmt::format("shapes: x [num_tokens, {}], {} query heads and {} KV heads of {} ({} for v)",
                    s.in, s.q_heads, kv_heads, s.slab.head_dim, s.slab.v_head_dim));
    w.note(fmt::format("dtype: q {}, k {}, v {}, KV cache {}, activations f32, sums f32",
                       describe(s.q), describe(s.k), describe(s.v), s.slab.dtype));
    w.constant("kIn", s.in);
    w.constant("kTokens", tokens);
    write_slab(w, s.slab, s.kv_heads.begin - s.slab.first_head);
    w.constant("kQHeads", s.q_heads);
    w.constant("kKvHeads", kv_heads);
    w.weight("QWeight", s.q, s.in, "q");
    w.weight("KWeight", s.k, s.in, "k");
    w.weight("VWeight", s.v, s.in, "v");
    w.operand("kQBias", "QBias", s.q_bias);
    w.operand("kKBias", "KBias", s.k_bias);
    w.operand("kVBias", "VBias", s.v_bias);
    write_norm(w, s.norm, "double");
    write_norm(w, s.q_norm, "double", "Q");
    write_norm(w, s.k_norm, "double", "K");
    write_rope(w, "Q", s.q_rope);
    write_rope(w, "K", s.k_rope);
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    w.arg("const float*", "x");
    if (s.norm) w.arg(element_pointer(s.norm->weight, "norm"), "norm");
    w.arg("const Config::QWeight*", "q_weight");
    optional_arg(w, s.q_bias, "q_bias");
    w.arg("const Config::KWeight*", "k_weight");
    optional_arg(w, s.k_bias, "k_bias");
    w.arg("const Config::VWeight*", "v_weight");
    optional_arg(w, s.v_bias, "v_bias");
    if (s.q_norm) w.arg(element_pointer(s.q_norm->weight, "q_norm"), "q_norm");
    if (s.k_norm) w.arg(element_pointer(s.k_norm->weight, "k_norm"), "k_norm");
    if (s.q_rope) w.arg("const float*", "q_rope");
    if (s.k_rope) w.arg("const float*", "k_rope");
    w.arg("float*", "q_out");
    w.arg("Config::Kv*", "kv");
    w.arg("i64", "num_slots");
    w.arg("i64", "context");
    w.arg("i64", "rope_context");
    w.arg("const i32*", "positions");
    w.arg("const i32*", "slots");
    w.arg("i64", "num_tokens");
    return stub.finish("host/qkv.h", "qkv", "QkvArgs");
}

}  // namespace cleave::codegen
