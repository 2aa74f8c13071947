// SPDX-License-Identifier: Apache-2.0
// A spec -> the Kernel: item sizes, scratch, and the stub's text. The templates define what each name means.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/kernel_spec.h"
#include "codegen/stub_writer.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

using planner::KernelKind;

// Upper bounds over all CPUs of what prelude.h and matmul.h define; the stub asserts that they hold.
constexpr int64_t kMaxLanes = 16;
constexpr int64_t kMaxTileRows = 12;
constexpr int64_t kConvertDepth = 256;

// Scratch that a thread's block of tokens should not exceed: about what stays in its second-level cache.
constexpr int64_t kBlockBytes = 1 << 20;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

struct Stub {
    KernelKind kind;
    const std::vector<std::string>& fused;
    const HostTarget& target;
    StubWriter writer;
    Launch launch;

    Kernel finish(std::string_view file, std::string_view call, std::string_view args_struct = {}) {
        CHECK(target.tile.shared_bytes == 0 || launch.shared_bytes <= target.tile.shared_bytes)
            << planner::kernel_kind_name(kind) << " needs " << launch.shared_bytes
            << " bytes of scratch, its tile claims " << target.tile.shared_bytes;
        return writer.finish(kind, fused, file, call, args_struct, launch);
    }
};

// Tokens that a thread makes ready together: the plan's, or as many as its cache holds, in whole vectors.
int64_t block_tokens(int64_t depth, const HostTarget& target) {
    if (target.tile.tokens > 0) return target.tile.tokens;
    int64_t fit = kBlockBytes / (round_up(depth, kMaxLanes) * 4);
    return std::clamp<int64_t>(fit / (2 * kMaxLanes) * (2 * kMaxLanes), 2 * kMaxLanes, 128);
}

// Rows of an item: the plan's, or whole register tiles, few enough that every thread gets several items.
int64_t item_rows(int64_t out, const HostTarget& target) {
    if (target.tile.rows > 0) return target.tile.rows;
    int64_t wanted = out / std::max<int64_t>(8 * target.threads, 1);
    return std::clamp<int64_t>(wanted / kMaxTileRows * kMaxTileRows, kMaxTileRows, 96);
}

int64_t scratch_bytes(int64_t depth, int64_t tokens, int64_t rows, int64_t copies) {
    int64_t floats = round_up(tokens, kMaxLanes) * round_up(depth, kMaxLanes) +
                     copies * tokens * (rows + kMaxLanes) + kMaxTileRows * kConvertDepth;
    return round_up(floats * 4, 64);
}

Extent rows_extent(RowCount count) {
    Extent e;
    (count == RowCount::kTokens ? e.per_token : e.per_output) = 1;
    return e;
}

std::string pointer(DType dtype, std::string_view what) {
    return fmt::format("const {}*", element_type(dtype, what));
}

void write_norm(StubWriter& w, const std::optional<NormSpec>& norm, std::string_view prefix = "") {
    w.operand(fmt::format("k{}Norm", prefix), fmt::format("{}NormWeight", prefix),
              norm ? std::optional(norm->weight) : std::nullopt);
    NormSpec n = norm.value_or(NormSpec{});
    w.real("double", prefix.empty() ? "kEpsilon" : fmt::format("k{}NormEpsilon", prefix),
           n.epsilon);
    w.real("float", fmt::format("k{}NormOffset", prefix), n.offset);
}

void optional_arg(StubWriter& w, const std::optional<DType>& dtype, std::string_view name) {
    if (dtype) w.arg(pointer(*dtype, name), name);
}

// ---- Matrix products --------------------------------------------------------------------------------

Kernel make(const LinearSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    int64_t rows = item_rows(s.out, stub.target), tokens = block_tokens(s.in, stub.target);
    stub.launch.grid[0] = Extent{ceil_div(s.out, rows)};
    stub.launch.shared_bytes = scratch_bytes(s.in, tokens, rows, 1);
    w.note(fmt::format("shapes: x [{}, {}], weight [{}, {}], out [{}, {}]",
                       s.count == RowCount::kTokens ? "num_tokens" : "num_outputs", s.in, s.out,
                       s.in, s.count == RowCount::kTokens ? "num_tokens" : "num_outputs", s.out));
    w.note(fmt::format("dtype: weight {}, activations f32, sums f32", s.weight));
    w.constant("kIn", s.in);
    w.constant("kOut", s.out);
    w.constant("kItemRows", rows);
    w.constant("kTokens", tokens);
    w.type("Weight", element_type(s.weight, "weight"));
    w.operand("kBias", "Bias", s.bias);
    write_norm(w, s.norm);
    w.constant("kScaled", s.scale.has_value());
    w.real("float", "kScale", s.scale.value_or(1.0));
    w.constant("kResidual", s.residual.has_value());
    w.view("Residual", s.residual.value_or(View{}));
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    w.arg("const float*", "x");
    if (s.norm) w.arg(pointer(s.norm->weight, "norm"), "norm");
    w.arg(pointer(s.weight, "weight"), "weight");
    optional_arg(w, s.bias, "bias");
    if (s.residual) w.arg("const float*", "residual");
    if (s.select) w.arg("const i32*", "rows");
    w.arg("float*", "out");
    w.arg("i64", "num_tokens");
    return stub.finish("host/linear.h", "linear", "LinearArgs");
}

Kernel make(const GateUpSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    int64_t rows = item_rows(s.out, stub.target), tokens = block_tokens(s.in, stub.target);
    stub.launch.grid[0] = Extent{ceil_div(s.out, rows)};
    stub.launch.shared_bytes = scratch_bytes(s.in, tokens, rows, 2);
    w.note(fmt::format("shapes: x [num_tokens, {}], gate and up [{}, {}], out [num_tokens, {}]",
                       s.in, s.out, s.in, s.out));
    w.note(fmt::format("dtype: gate {}, up {}, activations f32, sums f32", s.gate, s.up));
    w.constant("kIn", s.in);
    w.constant("kOut", s.out);
    w.constant("kItemRows", rows);
    w.constant("kTokens", tokens);
    w.type("GateWeight", element_type(s.gate, "gate"));
    w.type("UpWeight", element_type(s.up, "up"));
    w.operand("kGateBias", "GateBias", s.gate_bias);
    w.operand("kUpBias", "UpBias", s.up_bias);
    write_norm(w, s.norm);
    w.activation("kActivation", s.activation);
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    w.arg("const float*", "x");
    if (s.norm) w.arg(pointer(s.norm->weight, "norm"), "norm");
    w.arg(pointer(s.gate, "gate"), "gate");
    optional_arg(w, s.gate_bias, "gate_bias");
    w.arg(pointer(s.up, "up"), "up");
    optional_arg(w, s.up_bias, "up_bias");
    w.arg("float*", "out");
    w.arg("i64", "num_tokens");
    return stub.finish("host/gate_up.h", "gate_up", "GateUpArgs");
}

void write_slab(StubWriter& w, const SlabSpec& slab, int64_t first_head) {
    w.constant("kHeadDim", slab.head_dim);
    w.constant("kVHeadDim", slab.v_head_dim);
    w.constant("kSlabHeads", slab.heads);
    w.constant("kSlabOffset", first_head);
    w.type("Kv", element_type(slab.dtype, "the KV cache"));
}

void write_rope(StubWriter& w, std::string_view prefix, const std::optional<RopeSpec>& rope) {
    w.constant(fmt::format("k{}Rotary", prefix), rope ? rope->rotary : 0);
    w.constant(fmt::format("k{}Interleaved", prefix), rope && rope->interleaved);
}

Kernel make(const QkvSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    int64_t tokens = block_tokens(s.in, stub.target), kv_heads = s.kv_heads.size();
    stub.launch.grid[0] = Extent{s.q_heads + 2 * kv_heads};
    stub.launch.shared_bytes =
        scratch_bytes(s.in, tokens, std::max(s.slab.head_dim, s.slab.v_head_dim), 1);
    w.note(
        fmt::format("shapes: x [num_tokens, {}], {} query heads and {} KV heads of {} ({} for v)",
                    s.in, s.q_heads, kv_heads, s.slab.head_dim, s.slab.v_head_dim));
    w.note(fmt::format("dtype: q {}, k {}, v {}, KV cache {}, activations f32, sums f32", s.q, s.k,
                       s.v, s.slab.dtype));
    w.constant("kIn", s.in);
    w.constant("kTokens", tokens);
    write_slab(w, s.slab, s.kv_heads.begin - s.slab.first_head);
    w.constant("kQHeads", s.q_heads);
    w.constant("kKvHeads", kv_heads);
    w.type("QWeight", element_type(s.q, "q"));
    w.type("KWeight", element_type(s.k, "k"));
    w.type("VWeight", element_type(s.v, "v"));
    w.operand("kQBias", "QBias", s.q_bias);
    w.operand("kKBias", "KBias", s.k_bias);
    w.operand("kVBias", "VBias", s.v_bias);
    write_norm(w, s.norm);
    write_norm(w, s.q_norm, "Q");
    write_norm(w, s.k_norm, "K");
    write_rope(w, "Q", s.q_rope);
    write_rope(w, "K", s.k_rope);
    w.view("X", s.x);
    w.constant("kScratchBytes", stub.launch.shared_bytes);
    w.arg("const float*", "x");
    if (s.norm) w.arg(pointer(s.norm->weight, "norm"), "norm");
    w.arg(pointer(s.q, "q"), "q_weight");
    optional_arg(w, s.q_bias, "q_bias");
    w.arg(pointer(s.k, "k"), "k_weight");
    optional_arg(w, s.k_bias, "k_bias");
    w.arg(pointer(s.v, "v"), "v_weight");
    optional_arg(w, s.v_bias, "v_bias");
    if (s.q_norm) w.arg(pointer(s.q_norm->weight, "q_norm"), "q_norm");
    if (s.k_norm) w.arg(pointer(s.k_norm->weight, "k_norm"), "k_norm");
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

// ---- Attention ----------------------------------------------------------------------------------------

// Heads of each item: those that share a KV head, four at most (they read its keys together), fewer when
// there would be less than two items for a thread.
std::vector<int64_t> attention_parts(const AttentionSpec& s, const HostTarget& target) {
    int64_t together =
        std::clamp<int64_t>(s.heads.size() / std::max<int64_t>(2 * target.threads, 1), 1, 4);
    std::vector<int64_t> begins = {0};
    for (int64_t h = 1; h < s.heads.size(); ++h) {
        bool other = (s.heads.begin + h) / s.group != (s.heads.begin + h - 1) / s.group;
        if (other || h - begins.back() >= together) begins.push_back(h);
    }
    begins.push_back(s.heads.size());
    return begins;
}

Kernel make(const AttentionSpec& s, Stub stub) {
    constexpr int64_t kItemQueries = 16;
    StubWriter& w = stub.writer;
    int64_t heads = s.heads.size();
    std::vector<int64_t> parts = attention_parts(s, stub.target);
    auto num_parts = static_cast<int64_t>(parts.size()) - 1;
    Extent items;
    items.per_token = s.prefill ? heads : num_parts;
    items.divisor = s.prefill ? kItemQueries : 1;
    stub.launch.grid[0] = items;
    w.note(fmt::format(
        "shapes: q [num_tokens, {} x {}], out [num_tokens, {} x {}], {} query heads for a KV head",
        heads, s.slab.head_dim, heads, s.slab.v_head_dim, s.group));
    w.note(fmt::format("dtype: KV cache {}, activations f32, sums f32", s.slab.dtype));
    // Counted from the slab's first group, so that equal shards of different devices share their kernel.
    write_slab(w, s.slab, 0);
    w.constant("kQHeads", heads);
    w.constant("kFirstHead", s.heads.begin - s.slab.first_head * s.group);
    w.constant("kGroup", s.group);
    w.real("float", "kScale", s.scale);
    w.constant("kWindow", s.window);
    w.real("float", "kSoftcap", s.softcap);
    w.view("Q", s.q);
    w.constant("kByToken", !s.prefill);
    w.constant("kItemQueries", kItemQueries);
    w.constant("kNumParts", num_parts);
    std::string list;
    for (int64_t p : parts) list += fmt::format("{}{}", list.empty() ? "" : ", ", p);
    w.line(fmt::format("static constexpr i64 kPartBegin[] = {{{}}};", list));
    w.arg("const float*", "q");
    w.arg("const Config::Kv*", "kv");
    w.arg("i64", "num_slots");
    w.arg("i64", "context");
    w.arg("float*", "out");
    w.arg("const i32*", "positions");
    w.arg("const i32*", "slots");
    w.arg("i64", "num_tokens");
    return stub.finish("host/attention.h", "attention", "AttentionArgs");
}

// ---- Single operators ------------------------------------------------------------------------------------

Kernel make(const EmbeddingSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(RowCount::kTokens);
    w.note(fmt::format("shapes: table [{}, {}], out [num_tokens, {}]", s.rows, s.hidden, s.hidden));
    w.note(fmt::format("dtype: table {}, activations f32", s.weight));
    w.constant("kOut", s.hidden);
    w.constant("kRows", s.rows);
    w.type("Weight", element_type(s.weight, "the embedding table"));
    w.real("float", "kScale", s.scale);
    w.arg("const i32*", "ids");
    w.arg("i64", "first");
    w.arg(pointer(s.weight, "the embedding table"), "table");
    w.arg("float*", "out");
    return stub.finish("host/elementwise.h", "embedding");
}

Kernel make(const RmsNormSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(s.count);
    w.note(fmt::format("shapes: x [rows, {}], weight [{}]", s.out, s.group));
    w.note(fmt::format("dtype: weight {}, activations f32, sums f64", s.norm.weight));
    w.constant("kOut", s.out);
    w.constant("kGroup", s.group);
    w.type("Weight", element_type(s.norm.weight, "the norm's weight"));
    w.real("double", "kEpsilon", s.norm.epsilon);
    w.real("float", "kOffset", s.norm.offset);
    w.view("X", s.x);
    w.arg("const float*", "x");
    w.arg(pointer(s.norm.weight, "the norm's weight"), "weight");
    w.arg("float*", "out");
    return stub.finish("host/elementwise.h", "rms_norm");
}

Kernel make(const RopeOnlySpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(RowCount::kTokens);
    w.note(fmt::format("shapes: x [num_tokens, {}], heads of {}, {} of them turn", s.out,
                       s.head_dim, s.rope.rotary));
    w.note("dtype: activations f32, table f32");
    w.constant("kOut", s.out);
    w.constant("kHeadDim", s.head_dim);
    w.constant("kRotary", s.rope.rotary);
    w.constant("kInterleaved", s.rope.interleaved);
    w.view("X", s.x);
    w.arg("const float*", "x");
    w.arg("const float*", "table");
    w.arg("i64", "context");
    w.arg("const i32*", "positions");
    w.arg("float*", "out");
    return stub.finish("host/elementwise.h", "rope");
}

Kernel make(const KvAppendSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(RowCount::kTokens);
    w.note(fmt::format("shapes: {} KV heads of {} ({} for v)", s.kv_heads.size(), s.slab.head_dim,
                       s.slab.v_head_dim));
    w.note(fmt::format("dtype: KV cache {}, activations f32", s.slab.dtype));
    write_slab(w, s.slab, s.kv_heads.begin - s.slab.first_head);
    w.constant("kKvHeads", s.kv_heads.size());
    w.view("K", s.k);
    w.view("V", s.v);
    w.arg("const float*", "k");
    w.arg("const float*", "v");
    w.arg("Config::Kv*", "kv");
    w.arg("i64", "num_slots");
    w.arg("i64", "context");
    w.arg("const i32*", "positions");
    w.arg("const i32*", "slots");
    return stub.finish("host/elementwise.h", "kv_append");
}

Kernel make(const GatedActivationSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(RowCount::kTokens);
    w.note(fmt::format("shapes: gate, up, out [num_tokens, {}]; dtype: f32", s.out));
    w.constant("kOut", s.out);
    w.activation("kActivation", s.activation);
    w.view("X", s.gate);
    w.view("Y", s.up);
    w.arg("const float*", "gate");
    w.arg("const float*", "up");
    w.arg("float*", "out");
    return stub.finish("host/elementwise.h", "gated_activation");
}

Kernel make(const AddSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(s.count);
    w.note(fmt::format("shapes: x, y, out [rows, {}]; dtype: f32", s.out));
    w.constant("kOut", s.out);
    w.view("X", s.x);
    w.view("Y", s.y);
    w.arg("const float*", "x");
    w.arg("const float*", "y");
    w.arg("float*", "out");
    return stub.finish("host/elementwise.h", "add");
}

Kernel make(const ScaleSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(s.count);
    w.note(fmt::format("shapes: x, out [rows, {}]; dtype: f32", s.out));
    w.constant("kOut", s.out);
    w.real("float", "kScale", s.factor);
    w.view("X", s.x);
    w.arg("const float*", "x");
    w.arg("float*", "out");
    return stub.finish("host/elementwise.h", "scale");
}

Kernel make(const SelectTokensSpec& s, Stub stub) {
    StubWriter& w = stub.writer;
    stub.launch.grid[0] = rows_extent(RowCount::kOutputs);
    w.note(
        fmt::format("shapes: x [num_tokens, {}], out [num_outputs, {}]; dtype: f32", s.out, s.out));
    w.constant("kOut", s.out);
    w.view("X", s.x);
    w.arg("const float*", "x");
    w.arg("const i32*", "rows");
    w.arg("float*", "out");
    return stub.finish("host/elementwise.h", "select_tokens");
}

void check_head(const KernelSpec& spec) {
    auto check = [](const SlabSpec& slab) {
        if (slab.head_dim % 2 || slab.v_head_dim % 2)
            throw UserError(
                "host kernels need even head sizes: this model has heads of {} (values: {})",
                slab.head_dim, slab.v_head_dim);
    };
    if (const auto* s = std::get_if<AttentionSpec>(&spec)) check(s->slab);
}

}  // namespace

Kernel make_host_kernel(const KernelSpec& spec, KernelKind kind,
                        const std::vector<std::string>& fused, const HostTarget& target) {
    check_head(spec);
    return std::visit([&](const auto& s) { return make(s, Stub{kind, fused, target, {}, {}}); },
                      spec);
}

}  // namespace cleave::codegen
