// SPDX-License-Identifier: Apache-2.0
// Matrix products of GPUs: a spec -> launch, shared memory, and the stub's text.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/gpu/formats.h"
#include "codegen/gpu/stub.h"
#include "codegen/kernel/occupancy.h"
#include "codegen/text/products.h"
#include "planner/tiles/gpu.h"
#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::codegen {

using planner::Tile;

namespace {

// Whether a product of many tokens divides its rows by factors, or takes them with factors: where
// they are narrowed to f16 from what may be larger.
template <class Spec>
bool has_factors(const Spec& s, const WeightFormat& weight, const GpuStub& stub) {
    if (s.prepared) return s.factors;
    return weight.staged() == DType::kF16 && (s.norm || stub.target.activations != DType::kF16);
}

// Config and launch of a product: blocks along x are the caller's.
void write_product(GpuStub& stub, planner::ProductShape shape, RowCount count, bool factors) {
    const planner::DeviceLimits& limits = stub.target.limits;
    planner::set_arch(gpu_arch_of(stub.target.device), shape);
    stub.take(planner::product_tile(limits, shape));
    const Tile& tile = stub.tile;
    stub.smaller = planner::smaller_product_tile(limits, shape, tile);
    const bool many = planner::multiplies_tiles(tile);
    stub.form = many ? KernelForm::kGemm : KernelForm::kGemv;
    stub.launch.shared_bytes = planner::product_shared_bytes(limits, shape, tile);
    stub.launch.grid[1] = rows_extent(count, tile.tokens);
    StubWriter& w = stub.writer;
    w.constant("kMany", many);
    w.leave_out(many ? "gpu/gemv.cuh" : "gpu/gemm.cuh");
    if (many) {
        w.constant("kWarpgroups", tile.main_loop == planner::MainLoop::kWarpgroups);
        w.constant("kPrepared", shape.prepared);
        w.constant("kFactors", factors);
        // What is seldom done behind the loop would take a block's registers over half a unit's.
        if (factors && !shape.prepared) w.take_registers();
        w.constant("kTilesTogether", std::max<int64_t>(1, planner::kTokensTogether / tile.tokens));
    }
    CLEAVE_CHECK(many || !shape.prepared) << "few tokens take activations as they are";
    // Of many tokens they compute longer than a launch takes, and need their units to themselves.
    stub.overlaps = !many;
    stub.has_ring = !many && tile.stages > 0;
    w.constant("kIn", shape.depth);
    w.constant("kThreads", tile.threads);
    w.constant("kTokens", tile.tokens);
    w.constant("kRows", tile.rows * shape.per_feature);
    w.constant("kDepth", tile.depth);
    w.constant("kLanes", planner::product_lanes(limits, shape));
    w.constant("kAtOnce", many ? 1 : planner::product_rows_at_once(limits, shape, tile));
    w.constant("kStages", tile.stages);
    w.constant("kSharedBytes", stub.launch.shared_bytes);
}

void write_qkv_config(const QkvSpec& s, GpuStub& stub) {
    StubWriter& w = stub.writer;
    write_slab(w, s.slab, s.kv_heads.begin - s.slab.first_head);
    w.constant("kQHeads", s.q_heads);
    w.constant("kKvHeads", s.kv_heads.size());
    w.weight("Weight", s.q, s.in, "q, k and v");
    write_operands(s, stub);
    CLEAVE_CHECK(!s.q_rope || !s.k_rope || s.q_rope->interleaved == s.k_rope->interleaved)
        << "rope turns other pairs of q than of k";
    w.constant("kQRotary", s.q_rope ? s.q_rope->rotary : 0);
    w.constant("kKRotary", s.k_rope ? s.k_rope->rotary : 0);
    w.constant("kInterleaved",
               (s.q_rope && s.q_rope->interleaved) || (s.k_rope && s.k_rope->interleaved));
}

}  // namespace

Kernel make_product(const LinearSpec& s, GpuStub& stub) {
    StubWriter& w = stub.writer;
    planner::ProductShape shape{s.in, s.out, stub.target.max_tokens};
    set_format(s.weight, "weight", shape);
    shape.prepared = s.prepared;
    write_product(stub, shape, s.count, has_factors(s, s.weight, stub));
    stub.launch.grid[0] = Extent{ceil_div(s.out, stub.tile.rows)};
    w.constant("kOut", s.out);
    write_operands(s, stub);
    stub.in_type(s.x, s.prepared, s.weight);
    w.type("Out", s.logits ? "float" : stub.activations());
    write_parameters(s, stub);
    return stub.finish("gpu/linear.cuh", "linear", "LinearArgs");
}

Kernel make_product(const GateUpSpec& s, GpuStub& stub) {
    StubWriter& w = stub.writer;
    one_format("gate and up", {s.gate, s.up});
    planner::ProductShape shape{s.in, s.out, stub.target.max_tokens};
    shape.per_feature = 2;
    set_format(s.gate, "gate", shape);
    shape.prepared = s.prepared;
    write_product(stub, shape, RowCount::kTokens, has_factors(s, s.gate, stub));
    stub.launch.grid[0] = Extent{ceil_div(s.out, stub.tile.rows)};
    w.constant("kOut", s.out);
    w.weight("Weight", s.gate, s.in, "gate");
    write_operands(s, stub);
    w.note(fmt::format("dtype: gate and up {}, activations {}, sums f32", describe(s.gate),
                       stub.target.activations));
    stub.in_type(s.x, s.prepared, s.gate);
    w.type("Out", stub.activations());
    write_parameters(s, stub);
    return stub.finish("gpu/gate_up.cuh", "gate_up", "GateUpArgs");
}

Kernel make_product(const QkvSpec& s, GpuStub& stub) {
    StubWriter& w = stub.writer;
    one_format("q, k and v", {s.q, s.k, s.v});
    const int64_t kv_heads = s.kv_heads.size(), dim = s.slab.head_dim, v_dim = s.slab.v_head_dim;
    planner::ProductShape shape{s.in, s.q_heads * dim + kv_heads * (dim + v_dim),
                                stub.target.max_tokens};
    shape.head = std::max(dim, v_dim);
    shape.whole_head = s.q_norm || s.k_norm || s.slab.has_scales();
    set_format(s.q, "q, k and v", shape);
    shape.prepared = s.prepared;
    write_product(stub, shape, RowCount::kTokens, has_factors(s, s.q, stub));
    const int64_t cuts = ceil_div(dim, stub.tile.rows), v_cuts = ceil_div(v_dim, stub.tile.rows);
    stub.launch.grid[0] = Extent{(s.q_heads + kv_heads) * cuts + kv_heads * v_cuts};
    w.note(
        fmt::format("shapes: x [num_tokens, {}], {} query heads and {} KV heads of {} ({} for v)",
                    s.in, s.q_heads, kv_heads, dim, v_dim));
    w.note(fmt::format("dtype: q, k and v {}, KV cache {}, activations {}, sums f32", describe(s.q),
                       s.slab.dtype, stub.target.activations));
    write_qkv_config(s, stub);
    stub.in_type(s.x, s.prepared, s.q);
    write_parameters(s, stub);
    return stub.finish("gpu/qkv.cuh", "qkv", "QkvArgs");
}

}  // namespace cleave::codegen
