// SPDX-License-Identifier: Apache-2.0
// A spec -> the GPU kernel: launch, shared memory, and the stub's text. The templates define what each name means;
// planner/gpu_tiles.h is the arithmetic.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/gpu_formats.h"
#include "codegen/gpu_program.h"
#include "codegen/kernel_spec.h"
#include "codegen/stub_writer.h"
#include "codegen/tail.h"
#include "planner/gpu_tiles.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

using planner::KernelKind;
using planner::Tile;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Stub {
    KernelKind kind;
    const std::vector<std::string>& fused;
    const GpuTarget& target;
    StubWriter writer;
    Launch launch;
    Tile tile;
    std::optional<Tile> smaller;

    std::string activations() const {
        return std::string(element_type(target.activations, "activations"));
    }
    std::string x_pointer() const { return element_pointer(target.activations, "activations"); }
    std::string out_pointer() const { return activations() + "*"; }

    void x_type(const View& x) {
        writer.type("X", activations());
        writer.view("X", x);
        writer.constant("kXAlign", planner::load_width(dtype_bytes(target.activations, 1),
                                                       std::gcd(x.stride, x.offset)));
    }

    // Takes the plan's tile, or `chosen` where the plan gave none.
    void take(const Tile& chosen) {
        tile = target.tile.threads > 0 ? target.tile : chosen;
        launch.block = {static_cast<int>(tile.threads), 1, 1};
    }

    Kernel finish(std::string_view file, std::string_view call, std::string_view args_struct = {}) {
        CHECK(launch.shared_bytes <= tile.shared_bytes &&
              launch.shared_bytes <= target.limits.shared_memory_per_block)
            << planner::kernel_kind_name(kind) << " needs " << launch.shared_bytes
            << " bytes of shared memory; its tile claims " << tile.shared_bytes << " of "
            << target.limits.shared_memory_per_block;
        Kernel kernel =
            writer.finish_gpu(kind, fused, file, call, args_struct, launch, target.device);
        kernel.tile = tile;
        return kernel;
    }
};

// The matrix as a parameter.
constexpr std::string_view kMatrix = "const Config::Weight*";

// ---- Matrix products --------------------------------------------------------------------------------

// Config and launch of a product: blocks along x are the caller's.
void write_product(Stub& stub, planner::ProductShape shape, RowCount count) {
    const planner::DeviceLimits& limits = stub.target.limits;
    shape.warpgroups = planner::multiplies_by_warpgroups(gpu_arch_of(stub.target.device));
    stub.take(planner::product_tile(limits, shape));
    const Tile& tile = stub.tile;
    stub.smaller = planner::smaller_product_tile(limits, shape, tile);
    bool many = planner::has_many_tokens(tile);
    stub.launch.shared_bytes = planner::product_shared_bytes(limits, shape, tile);
    stub.launch.grid[1] = rows_extent(count, tile.tokens);
    StubWriter& w = stub.writer;
    w.constant("kMany", many);
    w.leave_out(many ? "gpu/few_tokens.cuh" : "gpu/many_tokens.cuh");
    if (many) w.constant("kWarpgroups", planner::is_of_warpgroups(tile));
    w.constant("kIn", shape.depth);
    w.constant("kThreads", tile.threads);
    w.constant("kTokens", tile.tokens);
    w.constant("kRows", tile.rows * shape.per_feature);
    w.constant("kDepth", tile.depth);
    w.constant("kLanes", planner::product_lanes(limits, shape));
    w.constant("kAtOnce", many ? 1 : planner::product_rows_at_once(limits, shape, tile));
    w.constant("kSharedBytes", stub.launch.shared_bytes);
}

std::string count_name(RowCount count) {
    return count == RowCount::kTokens ? "num_tokens" : "num_outputs";
}

Kernel make(const LinearSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    planner::ProductShape shape{s.in, s.out, stub.target.max_tokens};
    set_format(s.weight, "weight", shape);
    write_product(stub, shape, s.count);
    stub.launch.grid[0] = Extent{ceil_div(s.out, stub.tile.rows)};
    std::string rows = count_name(s.count);
    w.note(fmt::format("shapes: x [{}, {}], weight [{}, {}], out [{}, {}]", rows, s.in, s.out, s.in,
                       rows, s.out));
    w.note(fmt::format("dtype: weight {}, activations {}, sums f32", describe(s.weight),
                       stub.target.activations));
    w.constant("kOut", s.out);
    w.weight("Weight", s.weight, s.in, "weight");
    w.operand("kBias", "Bias", s.bias);
    write_norm(w, s.norm, "float");
    w.constant("kScaled", s.scale.has_value());
    w.real("float", "kScale", s.scale.value_or(1.0));
    w.real("float", "kSoftcap", s.softcap);
    w.constant("kResidual", s.residual.has_value());
    w.view("Residual", s.residual.value_or(View{}));
    stub.x_type(s.x);
    w.type("Out", s.logits ? "float" : stub.activations());
    w.arg(stub.x_pointer(), "x");
    if (s.norm) w.arg(element_pointer(s.norm->weight, "norm"), "norm");
    w.arg(kMatrix, "weight");
    optional_arg(w, s.bias, "bias");
    if (s.residual) w.arg(stub.x_pointer(), "residual");
    if (s.select) w.arg("const i32*", "rows");
    w.arg(s.logits ? "float*" : stub.out_pointer(), "out");
    w.arg("i64", "num_tokens");
    write_gpu_tail(w, s.tail, stub.x_pointer());
    return stub.finish("gpu/linear.cuh", "linear", "LinearArgs");
}

Kernel make(const GateUpSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    one_format("gate and up", {s.gate, s.up});
    planner::ProductShape shape{s.in, s.out, stub.target.max_tokens};
    shape.per_feature = 2;
    set_format(s.gate, "gate", shape);
    write_product(stub, shape, RowCount::kTokens);
    stub.launch.grid[0] = Extent{ceil_div(s.out, stub.tile.rows)};
    w.note(fmt::format("shapes: x [num_tokens, {}], gate and up [{}, {}], out [num_tokens, {}]",
                       s.in, s.out, s.in, s.out));
    w.note(fmt::format("dtype: gate and up {}, activations {}, sums f32", describe(s.gate),
                       stub.target.activations));
    w.constant("kOut", s.out);
    w.weight("Weight", s.gate, s.in, "gate");
    w.operand("kGateBias", "GateBias", s.gate_bias);
    w.operand("kUpBias", "UpBias", s.up_bias);
    write_norm(w, s.norm, "float");
    w.activation("kActivation", s.activation);
    stub.x_type(s.x);
    w.type("Out", stub.activations());
    w.arg(stub.x_pointer(), "x");
    if (s.norm) w.arg(element_pointer(s.norm->weight, "norm"), "norm");
    w.arg(kMatrix, "gate");
    optional_arg(w, s.gate_bias, "gate_bias");
    w.arg(kMatrix, "up");
    optional_arg(w, s.up_bias, "up_bias");
    w.arg(stub.out_pointer(), "out");
    w.arg("i64", "num_tokens");
    write_gpu_tail(w, s.tail, stub.x_pointer());
    return stub.finish("gpu/gate_up.cuh", "gate_up", "GateUpArgs");
}

void write_qkv_config(const QkvSpec& s, StubWriter& w) {
    write_slab(w, s.slab, s.kv_heads.begin - s.slab.first_head);
    w.constant("kQHeads", s.q_heads);
    w.constant("kKvHeads", s.kv_heads.size());
    w.weight("Weight", s.q, s.in, "q, k and v");
    w.operand("kQBias", "QBias", s.q_bias);
    w.operand("kKBias", "KBias", s.k_bias);
    w.operand("kVBias", "VBias", s.v_bias);
    write_norm(w, s.norm, "float");
    write_norm(w, s.q_norm, "float", "Q");
    write_norm(w, s.k_norm, "float", "K");
    CHECK(!s.q_rope || !s.k_rope || s.q_rope->interleaved == s.k_rope->interleaved)
        << "rope turns other pairs of q than of k";
    w.constant("kQRotary", s.q_rope ? s.q_rope->rotary : 0);
    w.constant("kKRotary", s.k_rope ? s.k_rope->rotary : 0);
    w.constant("kInterleaved",
               (s.q_rope && s.q_rope->interleaved) || (s.k_rope && s.k_rope->interleaved));
}

Kernel make(const QkvSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    one_format("q, k and v", {s.q, s.k, s.v});
    const int64_t kv_heads = s.kv_heads.size(), dim = s.slab.head_dim, v_dim = s.slab.v_head_dim;
    planner::ProductShape shape{s.in, s.q_heads * dim + kv_heads * (dim + v_dim),
                                stub.target.max_tokens};
    shape.head = std::max(dim, v_dim);
    shape.whole_head = s.q_norm || s.k_norm;
    set_format(s.q, "q, k and v", shape);
    write_product(stub, shape, RowCount::kTokens);
    const int64_t cuts = ceil_div(dim, stub.tile.rows), v_cuts = ceil_div(v_dim, stub.tile.rows);
    stub.launch.grid[0] = Extent{(s.q_heads + kv_heads) * cuts + kv_heads * v_cuts};
    w.note(
        fmt::format("shapes: x [num_tokens, {}], {} query heads and {} KV heads of {} ({} for v)",
                    s.in, s.q_heads, kv_heads, dim, v_dim));
    w.note(fmt::format("dtype: q, k and v {}, KV cache {}, activations {}, sums f32", describe(s.q),
                       s.slab.dtype, stub.target.activations));
    write_qkv_config(s, w);
    stub.x_type(s.x);
    w.arg(stub.x_pointer(), "x");
    if (s.norm) w.arg(element_pointer(s.norm->weight, "norm"), "norm");
    w.arg(kMatrix, "q_weight");
    optional_arg(w, s.q_bias, "q_bias");
    w.arg(kMatrix, "k_weight");
    optional_arg(w, s.k_bias, "k_bias");
    w.arg(kMatrix, "v_weight");
    optional_arg(w, s.v_bias, "v_bias");
    if (s.q_norm) w.arg(element_pointer(s.q_norm->weight, "q_norm"), "q_norm");
    if (s.k_norm) w.arg(element_pointer(s.k_norm->weight, "k_norm"), "k_norm");
    if (s.q_rope) w.arg("const float*", "q_rope");
    if (s.k_rope) w.arg("const float*", "k_rope");
    w.arg(stub.out_pointer(), "q_out");
    w.arg("Config::Kv*", "kv");
    w.arg("i64", "num_slots");
    w.arg("i64", "context");
    w.arg("i64", "rope_context");
    w.arg("const i32*", "positions");
    w.arg("const i32*", "slots");
    w.arg("i64", "num_tokens");
    return stub.finish("gpu/qkv.cuh", "qkv", "QkvArgs");
}

// ---- Attention ----------------------------------------------------------------------------------------

Kernel make(const AttentionSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    const planner::DeviceLimits& limits = stub.target.limits;
    // Counted from the slab's first group, so that equal shards of different devices share their kernel.
    const int64_t first = s.heads.begin - s.slab.first_head * s.group, heads = s.heads.size();
    const int64_t kv_heads = ceil_div(first + heads, s.group) - first / s.group;
    planner::AttentionShape shape{
        heads,
        kv_heads,
        s.group,
        s.slab.head_dim,
        s.slab.v_head_dim,
        dtype_bytes(s.slab.dtype, 1),
        stub.target.max_tokens,
        stub.target.context,
        s.prefill,
        planner::multiplies_by_warpgroups(gpu_arch_of(stub.target.device))};
    stub.take(planner::attention_tile(limits, shape));
    stub.smaller = planner::smaller_attention_tile(limits, shape, stub.tile);
    const Tile& tile = stub.tile;
    const bool many = attends_many_tokens(tile);
    stub.launch.shared_bytes = planner::attention_shared_bytes(limits, shape, tile);
    w.note(fmt::format(
        "shapes: q [num_tokens, {} x {}], out [num_tokens, {} x {}], {} query heads for a KV head",
        heads, s.slab.head_dim, heads, s.slab.v_head_dim, s.group));
    w.note(fmt::format("dtype: KV cache {}, activations {}, sums f32", s.slab.dtype,
                       stub.target.activations));
    write_slab(w, s.slab, 0);
    w.constant("kQHeads", heads);
    w.constant("kFirstHead", first);
    w.constant("kGroup", s.group);
    w.real("float", "kScale", s.scale);
    w.constant("kWindow", s.window);
    w.real("float", "kSoftcap", s.softcap);
    w.type("X", stub.activations());
    w.view("Q", s.q);
    w.constant("kXAlign",
               planner::load_width(dtype_bytes(stub.target.activations, 1),
                                   std::gcd(std::gcd(s.q.stride, s.q.offset), s.slab.head_dim)));
    w.constant("kThreads", tile.threads);
    w.constant("kSharedBytes", stub.launch.shared_bytes);
    if (many) {
        w.constant("kQueries", tile.tokens);
        w.constant("kKeys", tile.depth);
        // A sequence may leave its last tile almost empty.
        stub.launch.grid[0].constant = 0;
        stub.launch.grid[0].per_token = 1;
        stub.launch.grid[0].per_sequence = tile.tokens - 1;
        stub.launch.grid[0].divisor = tile.tokens;
        stub.launch.grid[1] = Extent{heads};
    } else {
        w.constant("kTogether", tile.rows);
        w.constant("kLanes", planner::attention_lanes(limits, shape));
        w.constant("kSplits", tile.splits);
        const int64_t blocks = kv_heads * ceil_div(s.group, tile.rows);
        w.constant("kBlocks", blocks);
        stub.launch.grid[0] = rows_extent(RowCount::kTokens, 1, blocks);
        stub.launch.grid[2] = Extent{tile.splits};
    }
    w.arg(stub.x_pointer(), "q");
    w.arg("const Config::Kv*", "kv");
    w.arg("i64", "num_slots");
    w.arg("i64", "context");
    w.arg(stub.out_pointer(), "out");
    w.arg("const i32*", "positions");
    w.arg("const i32*", "slots");
    if (many) {
        w.arg("const i32*", "sequence_starts");
        w.arg("i64", "num_sequences");
    } else if (attention_is_split(tile)) {
        w.arg("float*", "scratch");
    }
    w.arg("i64", "num_tokens");
    if (!many) return stub.finish("gpu/attention_decode.cuh", "attention_decode", "AttentionArgs");
    return planner::attends_by_warpgroups(limits, shape, tile)
               ? stub.finish("gpu/attention_warpgroups.cuh", "attention_warpgroups",
                             "AttentionArgs")
               : stub.finish("gpu/attention_prefill.cuh", "attention_prefill", "AttentionArgs");
}

// ---- Operators that stand alone -----------------------------------------------------------------------

// Neighbours that a thread takes: they divide all of `lengths`; a load of each type takes them at once.
int64_t run_of(std::initializer_list<int64_t> lengths) {
    int64_t all = 0;
    for (int64_t length : lengths) all = std::gcd(all, length);
    return planner::load_width(4, all);
}

// Blocks of one row each, in x, which alone has no limit that a batch can meet; `blocks` of them a row, 0: as many as it has
// runs.
void write_rows(Stub& stub, int64_t features, int64_t run, RowCount count, int64_t blocks = 0) {
    stub.take(planner::elementwise_tile(stub.target.limits, features));
    stub.smaller = planner::smaller_elementwise_tile(stub.target.limits, stub.tile);
    if (blocks == 0) blocks = ceil_div(features, stub.tile.threads * run);
    stub.launch.grid[0] = rows_extent(count, 1, blocks);
    stub.writer.constant("kBlocks", blocks);
    stub.writer.type("X", stub.activations());
    stub.writer.constant("kOut", features);
    stub.writer.constant("kRun", run);
    stub.writer.constant("kThreads", stub.tile.threads);
}

// `words` of shared memory for each warp of a block.
void claim_warp_words(Stub& stub, int64_t words) {
    stub.launch.shared_bytes = 4 * words * stub.tile.threads / stub.target.limits.warp_width;
    stub.writer.constant("kSharedBytes", stub.launch.shared_bytes);
}

std::string activations_note(const Stub& stub) {
    return fmt::format("dtype: activations {}", stub.target.activations);
}

Kernel make(const EmbeddingSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    planner::ProductShape shape{s.hidden, s.rows, 1};
    set_format(s.weight, "the embedding table", shape);
    const bool whole = s.weight.quantized.has_value();
    write_rows(stub, s.hidden, whole ? planner::weight_width(shape) : run_of({s.hidden}),
               RowCount::kTokens);
    w.note(fmt::format("shapes: table [{}, {}], out [num_tokens, {}]", s.rows, s.hidden, s.hidden));
    w.note(fmt::format("dtype: table {}, activations {}", describe(s.weight),
                       stub.target.activations));
    w.constant("kRows", s.rows);
    w.weight("Weight", s.weight, s.hidden, "the embedding table");
    w.real("float", "kScale", s.scale);
    w.arg("const i32*", "ids");
    w.arg("i64", "first");
    w.arg(kMatrix, "table");
    w.arg(stub.out_pointer(), "out");
    return stub.finish("gpu/elementwise.cuh", "embedding");
}

Kernel make(const RmsNormSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out, run_of({s.group, s.x.stride, s.x.offset, tail_alignment(s.tail)}),
               s.count, s.out / s.group);
    w.note(fmt::format("shapes: x [rows, {}], weight [{}]", s.out, s.group));
    w.note(fmt::format("dtype: weight {}, activations {}, sums f32", s.norm.weight,
                       stub.target.activations));
    w.constant("kGroup", s.group);
    claim_warp_words(stub, 1);
    w.type("Weight", element_type(s.norm.weight, "the norm's weight"));
    w.real("float", "kEpsilon", s.norm.epsilon);
    w.real("float", "kOffset", s.norm.offset);
    w.view("X", s.x);
    w.arg(stub.x_pointer(), "x");
    w.arg(element_pointer(s.norm.weight, "the norm's weight"), "weight");
    w.arg(stub.out_pointer(), "out");
    write_gpu_tail(w, s.tail, stub.x_pointer());
    return stub.finish("gpu/elementwise.cuh", "rms_norm");
}

Kernel make(const RopeOnlySpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out, 1, RowCount::kTokens);
    w.note(fmt::format("shapes: x [num_tokens, {}], heads of {}, {} of them turn", s.out,
                       s.head_dim, s.rope.rotary));
    w.note(activations_note(stub) + ", table f32");
    w.constant("kHeadDim", s.head_dim);
    w.constant("kRotary", s.rope.rotary);
    w.constant("kInterleaved", s.rope.interleaved);
    w.view("X", s.x);
    w.arg(stub.x_pointer(), "x");
    w.arg("const float*", "table");
    w.arg("i64", "context");
    w.arg("const i32*", "positions");
    w.arg(stub.out_pointer(), "out");
    write_gpu_tail(w, s.tail, stub.x_pointer());
    return stub.finish("gpu/elementwise.cuh", "rope");
}

Kernel make(const KvAppendSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.kv_heads.size() * (s.slab.head_dim + s.slab.v_head_dim),
               run_of({s.slab.head_dim, s.slab.v_head_dim, s.k.stride, s.k.offset, s.v.stride,
                       s.v.offset}),
               RowCount::kTokens);
    w.note(fmt::format("shapes: {} KV heads of {} ({} for v)", s.kv_heads.size(), s.slab.head_dim,
                       s.slab.v_head_dim));
    w.note(
        fmt::format("dtype: KV cache {}, activations {}", s.slab.dtype, stub.target.activations));
    write_slab(w, s.slab, s.kv_heads.begin - s.slab.first_head);
    w.constant("kKvHeads", s.kv_heads.size());
    w.view("K", s.k);
    w.view("V", s.v);
    w.arg(stub.x_pointer(), "k");
    w.arg(stub.x_pointer(), "v");
    w.arg("Config::Kv*", "kv");
    w.arg("i64", "num_slots");
    w.arg("i64", "context");
    w.arg("const i32*", "positions");
    w.arg("const i32*", "slots");
    return stub.finish("gpu/elementwise.cuh", "kv_append");
}

Kernel make(const GatedActivationSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out,
               run_of({s.out, s.gate.stride, s.gate.offset, s.up.stride, s.up.offset,
                       tail_alignment(s.tail)}),
               RowCount::kTokens);
    w.note(
        fmt::format("shapes: gate, up, out [num_tokens, {}]; {}", s.out, activations_note(stub)));
    w.activation("kActivation", s.activation);
    w.view("X", s.gate);
    w.view("Y", s.up);
    w.arg(stub.x_pointer(), "gate");
    w.arg(stub.x_pointer(), "up");
    w.arg(stub.out_pointer(), "out");
    write_gpu_tail(w, s.tail, stub.x_pointer());
    return stub.finish("gpu/elementwise.cuh", "gated_activation");
}

Kernel make(const AddSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(
        stub, s.out,
        run_of({s.out, s.x.stride, s.x.offset, s.y.stride, s.y.offset, tail_alignment(s.tail)}),
        s.count);
    w.note(fmt::format("shapes: x, y, out [rows, {}]; {}", s.out, activations_note(stub)));
    w.view("X", s.x);
    w.view("Y", s.y);
    w.arg(stub.x_pointer(), "x");
    w.arg(stub.x_pointer(), "y");
    w.arg(stub.out_pointer(), "out");
    write_gpu_tail(w, s.tail, stub.x_pointer());
    return stub.finish("gpu/elementwise.cuh", "add");
}

Kernel make(const ScaleSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out, run_of({s.out, s.x.stride, s.x.offset, tail_alignment(s.tail)}),
               s.count);
    w.note(fmt::format("shapes: x, out [rows, {}]; {}", s.out, activations_note(stub)));
    w.real("float", "kScale", s.factor);
    w.real("float", "kSoftcap", s.softcap);
    w.view("X", s.x);
    w.arg(stub.x_pointer(), "x");
    w.arg(stub.out_pointer(), "out");
    write_gpu_tail(w, s.tail, stub.x_pointer());
    return stub.finish("gpu/elementwise.cuh", "scale");
}

Kernel make(const SelectTokensSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out, run_of({s.out, s.x.stride, s.x.offset, tail_alignment(s.tail)}),
               RowCount::kOutputs);
    w.note(fmt::format("shapes: x [num_tokens, {}], out [num_outputs, {}]; {}", s.out, s.out,
                       activations_note(stub)));
    w.view("X", s.x);
    w.arg(stub.x_pointer(), "x");
    w.arg("const i32*", "rows");
    w.arg(stub.out_pointer(), "out");
    write_gpu_tail(w, s.tail, stub.x_pointer());
    return stub.finish("gpu/elementwise.cuh", "select_tokens");
}

std::vector<std::string> helper_operators(const AllReduceSpec& s) {
    std::vector<std::string> operators = {"all_reduce"};
    if (s.residual) operators.emplace_back("add");
    if (s.norm) operators.emplace_back("rms_norm");
    return operators;
}
std::vector<std::string> helper_operators(const ArgmaxSpec&) { return {"argmax"}; }
std::vector<std::string> helper_operators(const CopySpec&) { return {"copy"}; }

// ---- Between the steps of a plan ------------------------------------------------------------------------

Kernel make(const AllReduceSpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out, run_of({s.out}), RowCount::kTokens, 1);
    claim_warp_words(stub, 1);
    w.note(fmt::format("shapes: {} partial values [rows, {}]", s.sources, s.out));
    w.note(fmt::format("dtype: values {}, sums f32", stub.target.activations));
    w.constant("kSources", s.sources);
    w.constant("kResidual", s.residual);
    write_norm(w, s.norm, "float");
    for (int64_t i = 0; i < s.sources; ++i) w.arg(stub.x_pointer(), fmt::format("source[{}]", i));
    if (s.residual) w.arg(stub.x_pointer(), "residual");
    w.arg(stub.out_pointer(), "out");
    if (s.norm) {
        w.arg(element_pointer(s.norm->weight, "norm"), "norm");
        w.arg(stub.out_pointer(), "normed");
    }
    return stub.finish("gpu/reduce.cuh", "all_reduce", "AllReduceArgs");
}

// One block has a row to itself, and the device: as many threads as find four loads each.
Kernel make(const ArgmaxSpec& s, Stub& stub) {
    const int64_t run = run_of({s.out}), warp = stub.target.limits.warp_width;
    Tile tile = planner::elementwise_tile(stub.target.limits, s.out);
    tile.threads = warp;
    // Compilers give a thread 32 registers; twice that is kept.
    const planner::DeviceLimits& limits = stub.target.limits;
    const int64_t by_registers =
        limits.registers_per_block > 0 ? limits.registers_per_block / 64 : 1024;
    const int64_t most = std::min({int64_t{1024}, limits.max_threads_per_block, by_registers});
    while (tile.threads * run * 4 < s.out && tile.threads * 2 <= most) tile.threads *= 2;
    tile.shared_bytes = 8 * tile.threads / warp;
    stub.take(tile);
    stub.writer.constant("kOut", s.out);
    stub.writer.constant("kRun", run);
    stub.writer.constant("kThreads", stub.tile.threads);
    stub.launch.grid = {rows_extent(RowCount::kOutputs), Extent{1}, Extent{1}};
    claim_warp_words(stub, 2);
    stub.writer.note(fmt::format("shapes: logits [num_outputs, {}], tokens [num_outputs]", s.out));
    stub.writer.note("dtype: logits f32");
    stub.writer.arg("const float*", "logits");
    stub.writer.arg("i32*", "tokens");
    return stub.finish("gpu/reduce.cuh", "argmax");
}

Kernel make(const CopySpec& s, Stub& stub) {
    StubWriter& w = stub.writer;
    write_rows(stub, s.out, run_of({s.out}), RowCount::kTokens);
    w.note(fmt::format("shapes: rows of {}", s.out));
    w.note(fmt::format("dtype: {} to {}", s.from, s.to));
    w.type("From", element_type(s.from, "the source"));
    w.type("To", element_type(s.to, "the destination"));
    w.arg(element_pointer(s.from, "the source"), "from");
    w.arg("i64", "from_stride");
    w.arg(fmt::format("{}*", element_type(s.to, "the destination")), "to");
    w.arg("i64", "to_stride");
    return stub.finish("gpu/reduce.cuh", "copy_rows");
}

Kernel make(const TensorSpec&, const Stub& stub) {
    throw UserError(
        "{} has no kernel for {}: operators over tensors (of graphs that are no language model) "
        "have kernels for devices of kind host only; run with --devices host",
        fmt::join(stub.fused, " + "), stub.target.device);
}

}  // namespace

bool attends_many_tokens(const Tile& tile) { return tile.tokens > 1; }
bool attention_is_split(const Tile& tile) { return tile.splits > 1; }

Kernel make_gpu_kernel(const KernelSpec& spec, KernelKind kind,
                       const std::vector<std::string>& fused, const GpuTarget& target) {
    const KernelSpec settled = with_settled_formats(spec);
    return std::visit(
        [&](const auto& s) {
            Stub stub{kind, fused, target, {}, {}, {}, {}};
            Kernel kernel = make(s, stub);
            if (stub.smaller)
                kernel.smaller = [spec, kind, fused, target, tile = *stub.smaller] {
                    GpuTarget smaller = target;
                    smaller.tile = tile;
                    return make_gpu_kernel(spec, kind, fused, smaller);
                };
            return kernel;
        },
        settled);
}

Kernel make_gpu_helper(const GpuHelperSpec& spec, const GpuTarget& target) {
    const std::vector<std::string> fused =
        std::visit([](const auto& s) { return helper_operators(s); }, spec);
    return std::visit(
        [&](const auto& s) {
            Stub stub{KernelKind::kOpaque, fused, target, {}, {}, {}, {}};
            return make(s, stub);
        },
        spec);
}

}  // namespace cleave::codegen
