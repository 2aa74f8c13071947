// SPDX-License-Identifier: Apache-2.0
// Specs of matrix products -> Kernels: linear, gate and up, q, k and v.
#include <algorithm>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

#include "codegen/host/stub.h"
#include "codegen/text/products.h"
#include "planner/tiles/host.h"
#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::codegen {

namespace {

// What a product with such weights rounds its input to: kRoundingOf of templates/host/rounded.h.
std::optional<DType> rounding_of(const WeightFormat& weight) {
    if (!weight.quantized)
        return weight.dtype == DType::kBF16 ? std::optional(DType::kBF16) : std::nullopt;
    const DType code = weight.quantized->code;
    const bool integers = code == DType::kUInt4 || code == DType::kUInt8;
    if (!integers || weight.dynamic() || weight.quantized->block % planner::kRoundingGroup != 0)
        return std::nullopt;
    return DType::kInt8;
}

using Rounding = std::optional<DType>;
Rounding shared_rounding(const HostTarget& target, std::initializer_list<WeightFormat> weights) {
    const Rounding first = rounding_of(*weights.begin());
    const bool same = std::all_of(weights.begin(), weights.end(),
                                  [&](const WeightFormat& w) { return rounding_of(w) == first; });
    return target.fast && same ? first : std::nullopt;
}

// The plan's tile, or the planner's choice where there is none.
int64_t block_tokens(int64_t depth, const HostTarget& target, Rounding rounding) {
    return target.tile.tokens > 0 ? target.tile.tokens : planner::host_tokens(depth, rounding);
}

int64_t item_rows(int64_t out, const HostTarget& target, Rounding rounding) {
    return target.tile.rows > 0 ? target.tile.rows
                                : planner::host_rows(out, target.threads, rounding);
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
    const Rounding rounding = shared_rounding(stub.target, {s.weight});
    int64_t rows = item_rows(s.out, stub.target, rounding);
    int64_t tokens = block_tokens(s.in, stub.target, rounding);
    stub.launch.grid[0] = Extent{ceil_div(s.out, rows)};
    stub.launch.shared_bytes = planner::host_scratch_bytes(s.in, tokens, rows, 1, rounding);
    w.constant("kIn", s.in);
    w.constant("kOut", s.out);
    w.constant("kItemRows", rows);
    w.constant("kTokens", tokens);
    w.constant("kReproducible", stub.target.reproducible);
    w.constant("kFast", stub.target.fast);
    write_operands(s, stub);
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    write_parameters(s, stub);
    return stub.finish("host/linear.h", "linear", "LinearArgs");
}

Kernel make_product(const GateUpSpec& s, HostStub& stub) {
    check_same_activations(s.gate.dynamic(), s.up.dynamic());
    StubWriter& w = stub.writer;
    const Rounding rounding = shared_rounding(stub.target, {s.gate, s.up});
    int64_t rows = item_rows(s.out, stub.target, rounding);
    int64_t tokens = block_tokens(s.in, stub.target, rounding);
    stub.launch.grid[0] = Extent{ceil_div(s.out, rows)};
    stub.launch.shared_bytes = planner::host_scratch_bytes(s.in, tokens, rows, 2, rounding);
    w.constant("kIn", s.in);
    w.constant("kOut", s.out);
    w.constant("kItemRows", rows);
    w.constant("kTokens", tokens);
    w.constant("kReproducible", stub.target.reproducible);
    w.constant("kFast", stub.target.fast);
    w.weight("GateWeight", s.gate, s.in, "gate");
    w.weight("UpWeight", s.up, s.in, "up");
    write_operands(s, stub);
    w.note(fmt::format("dtype: gate {}, up {}, activations f32, sums f32", describe(s.gate),
                       describe(s.up)));
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    write_parameters(s, stub);
    return stub.finish("host/gate_up.h", "gate_up", "GateUpArgs");
}

Kernel make_product(const QkvSpec& s, HostStub& stub) {
    check_same_activations(s.q.dynamic(), s.k.dynamic());
    check_same_activations(s.q.dynamic(), s.v.dynamic());
    StubWriter& w = stub.writer;
    const Rounding rounding = shared_rounding(stub.target, {s.q, s.k, s.v});
    const int64_t tokens = block_tokens(s.in, stub.target, rounding), kv_heads = s.kv_heads.size();
    stub.launch.grid[0] = Extent{s.q_heads + 2 * kv_heads};
    stub.launch.shared_bytes = planner::host_scratch_bytes(
        s.in, tokens, std::max(s.slab.head_dim, s.slab.v_head_dim), 1, rounding);
    w.note(
        fmt::format("shapes: x [num_tokens, {}], {} query heads and {} KV heads of {} ({} for v)",
                    s.in, s.q_heads, kv_heads, s.slab.head_dim, s.slab.v_head_dim));
    w.note(fmt::format("dtype: q {}, k {}, v {}, KV cache {}, activations f32, sums f32",
                       describe(s.q), describe(s.k), describe(s.v), s.slab.dtype));
    w.constant("kIn", s.in);
    w.constant("kTokens", tokens);
    w.constant("kReproducible", stub.target.reproducible);
    w.constant("kFast", stub.target.fast);
    write_slab(w, s.slab, s.kv_heads.begin - s.slab.first_head);
    w.constant("kQHeads", s.q_heads);
    w.constant("kKvHeads", kv_heads);
    w.weight("QWeight", s.q, s.in, "q");
    w.weight("KWeight", s.k, s.in, "k");
    w.weight("VWeight", s.v, s.in, "v");
    write_operands(s, stub);
    write_rope(w, "Q", s.q_rope);
    write_rope(w, "K", s.k_rope);
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    write_parameters(s, stub);
    return stub.finish("host/qkv.h", "qkv", "QkvArgs");
}

}  // namespace cleave::codegen
