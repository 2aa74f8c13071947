// SPDX-License-Identifier: Apache-2.0
// The rows of the kernel table.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tests/simt/kernel_case.h"

namespace cleave::test {

using namespace codegen;
using importer::Activation;
using planner::KernelKind;

namespace {

constexpr int64_t kSlots = 3, kContext = 150;

// Bounds by what is narrowed: a product of normalised operands loses about the type's last bit.
double narrowed_bound(DType dtype) {
    return dtype == DType::kF16 ? 1e-3 : dtype == DType::kBF16 ? 8e-3 : 2e-5;
}

struct Draw {
    KernelCase& c;
    std::mt19937 rng;
    GuardedBuffer operator()(const char* name, DType dtype, int64_t n, double scale = 1.0) {
        return GuardedBuffer::random(name, dtype, n, rng, scale);
    }
    int result(const char* name, int64_t n) {
        return c.add_arg(GuardedBuffer(name, c.activations, n));
    }
};

Row matrix_row(const Row& x, const GuardedBuffer& weight, int64_t rows, const GuardedBuffer* bias) {
    Row y;
    for (int64_t r = 0; r < rows; ++r) y.push_back(dot(weight, r, x, bias));
    return y;
}

void bounds(KernelCase& c, DType narrow) {
    c.tolerance = std::max(c.tolerance, narrowed_bound(c.activations));
    c.matrix_tolerance = std::max(narrowed_bound(narrow), c.tolerance);
}

// ---- Products ---------------------------------------------------------------------------------------

}  // namespace

KernelCase linear_case(DType dtype, int64_t in, int64_t out, int64_t tokens, LinearOptions o,
                       DType activations) {
    KernelCase c;
    c.activations = activations;
    c.name = fmt::format("linear {} {}x{} of {} tokens{}{}{}{}{}, activations {}", dtype, out, in,
                         tokens, o.norm ? ", norm" : "", o.bias ? ", bias" : "",
                         o.residual ? ", residual" : "", o.scale ? ", scale" : "",
                         o.select ? ", selected" : "", activations);
    c.fused = {"linear"};
    Draw draw{c, std::mt19937(static_cast<uint32_t>(in * 31 + out + tokens))};
    LinearSpec s;
    s.in = in;
    s.out = out;
    s.weight = dtype;
    s.x = o.select ? View{in, 0} : View{in + 12, 4};
    s.logits = o.logits;
    if (o.norm) s.norm = NormSpec{dtype, 1e-5, 0.5};
    if (o.bias) s.bias = DType::kF32;
    if (o.scale) s.scale = 0.75;
    if (o.residual) s.residual = View{out + 8, 2};
    s.select = o.select;
    s.count = o.select ? RowCount::kOutputs : RowCount::kTokens;
    const int64_t rows = o.select ? 2 * tokens : tokens;
    c.counts = {rows, o.select ? tokens : 1, 1};
    const double size = 1.0 / std::sqrt(static_cast<double>(in));
    int x = c.add_arg(draw("x", activations, rows * s.x.stride, 2.0));
    int norm = o.norm ? c.add_arg(draw("norm", dtype, in)) : -1;
    int weight = c.add_arg(draw("weight", dtype, in * out, size));
    int bias = o.bias ? c.add_arg(draw("bias", DType::kF32, out)) : -1;
    int residual = o.residual ? c.add_arg(draw("residual", activations, rows * (out + 8))) : -1;
    std::vector<int32_t> selected;
    for (int64_t t = 0; t < tokens; ++t) selected.push_back(static_cast<int32_t>(2 * t + t % 2));
    if (o.select) c.add_arg(GuardedBuffer::integers("output_rows", selected));
    int y = o.logits ? c.add_arg(GuardedBuffer::output("out", tokens * out))
                     : draw.result("out", tokens * out);
    c.add_arg(tokens);
    KernelCase::Result result{y, {}};
    for (int64_t t = 0; t < tokens; ++t) {
        int64_t from = o.select ? selected[static_cast<size_t>(t)] : t;
        Row row = read_row(c.operand(x), from, s.x, in);
        if (o.norm) rms_norm(row, c.operand(norm), 1e-5, 0.5);
        Row made = matrix_row(row, c.operand(weight), out, o.bias ? &c.operand(bias) : nullptr);
        for (int64_t i = 0; i < out; ++i) {
            double v = made[static_cast<size_t>(i)];
            if (o.scale) v *= 0.75;
            if (o.residual) v += c.operand(residual).at(t * (out + 8) + 2 + i);
            result.want.push_back(v);
        }
    }
    c.results = {result};
    bounds(c, dtype);
    c.spec = s;
    return c;
}

namespace {

KernelCase gate_up_case(DType dtype, int64_t in, int64_t out, int64_t tokens, Activation activation,
                        bool extras) {
    KernelCase c;
    c.name = fmt::format("gate_up {} {}x{} of {} tokens, activation {}{}", dtype, out, in, tokens,
                         static_cast<int>(activation), extras ? ", norm and biases" : "");
    c.kind = KernelKind::kNormGateUp;
    c.fused = {"linear", "linear", "gated_activation"};
    Draw draw{c, std::mt19937(static_cast<uint32_t>(in + 7 * out + tokens))};
    GateUpSpec s;
    s.in = in;
    s.out = out;
    s.gate = s.up = dtype;
    s.activation = activation;
    s.x = {in, 0};
    if (extras) {
        s.norm = NormSpec{DType::kF32, 1e-6, 0.0};
        s.gate_bias = s.up_bias = dtype;
    }
    c.counts = {tokens, 1, 1};
    const double size = 2.0 / std::sqrt(static_cast<double>(in));
    int x = c.add_arg(draw("x", DType::kF32, tokens * in, 2.0));
    int norm = extras ? c.add_arg(draw("norm", DType::kF32, in)) : -1;
    int gate = c.add_arg(draw("gate", dtype, in * out, size));
    int gate_bias = extras ? c.add_arg(draw("gate_bias", dtype, out)) : -1;
    int up = c.add_arg(draw("up", dtype, in * out, size));
    int up_bias = extras ? c.add_arg(draw("up_bias", dtype, out)) : -1;
    int y = draw.result("out", tokens * out);
    c.add_arg(tokens);
    KernelCase::Result result{y, {}};
    for (int64_t t = 0; t < tokens; ++t) {
        Row row = read_row(c.operand(x), t, s.x, in);
        if (extras) rms_norm(row, c.operand(norm), 1e-6, 0.0);
        Row g = matrix_row(row, c.operand(gate), out, extras ? &c.operand(gate_bias) : nullptr);
        Row u = matrix_row(row, c.operand(up), out, extras ? &c.operand(up_bias) : nullptr);
        for (size_t i = 0; i < g.size(); ++i)
            result.want.push_back(activate(activation, g[i]) * u[i]);
    }
    c.results = {result};
    bounds(c, dtype);
    c.matrix_tolerance *= 4;  // the error of one factor is as large as the other
    c.spec = s;
    return c;
}

struct QkvOptions {
    int64_t in = 64, head_dim = 16, v_head_dim = 16, q_heads = 4, kv_heads = 2, rotary = 16;
    bool interleaved = false, head_norms = false, biases = false;
};

Row head_row(const KernelCase& c, int weight, int bias, int64_t head, int64_t dim, const Row& x) {
    Row out;
    auto at = [&](int i) -> const GuardedBuffer& { return c.operands[static_cast<size_t>(i)]; };
    for (int64_t i = 0; i < dim; ++i)
        out.push_back(dot(at(weight), head * dim + i, x, bias >= 0 ? &at(bias) : nullptr));
    return out;
}

KernelCase qkv_case(bool host, DType dtype, DType kv_dtype, const RaggedBatch& batch,
                    QkvOptions o) {
    KernelCase c;
    const int64_t tokens = batch.num_tokens();
    c.name = fmt::format("qkv {}, cache {}, {} tokens, heads {} + {} of {}/{}, rotary {}{}{}{}",
                         dtype, kv_dtype, tokens, o.q_heads, o.kv_heads, o.head_dim, o.v_head_dim,
                         o.rotary, o.interleaved ? " interleaved" : "",
                         o.head_norms ? ", head norms" : "", o.biases ? ", biases" : "");
    c.kind = KernelKind::kNormQkvRopeAppend;
    c.fused = {"rms_norm", "linear", "linear", "linear", "rope", "rope", "kv_append"};
    Draw draw{c, std::mt19937(static_cast<uint32_t>(o.in + o.head_dim + tokens))};
    QkvSpec s;
    s.in = o.in;
    s.q_heads = o.q_heads;
    s.kv_heads = {2, 2 + o.kv_heads};
    s.q = s.k = s.v = dtype;
    if (o.biases) s.q_bias = s.k_bias = s.v_bias = DType::kF32;
    s.norm = NormSpec{DType::kF32, 1e-5, 0.0};
    if (o.head_norms) {
        s.q_norm = NormSpec{DType::kF32, 1e-6, 0.25};
        s.k_norm = NormSpec{DType::kF32, 1e-6, 0.0};
    }
    s.q_rope = s.k_rope = RopeSpec{o.rotary, o.interleaved};
    s.slab = {o.head_dim, o.v_head_dim, o.kv_heads + 1, 1, kv_dtype};
    s.x = {o.in + 8, 8};
    c.counts = {tokens, 1, 1};
    const double size = 1.0 / std::sqrt(static_cast<double>(o.in));
    int x = c.add_arg(draw("x", DType::kF32, tokens * s.x.stride, 2.0));
    int norm = c.add_arg(draw("norm", DType::kF32, o.in));
    auto weight = [&](const char* name, int64_t rows) {
        return c.add_arg(draw(name, dtype, rows * o.in, size));
    };
    auto bias = [&](const char* name, int64_t rows) {
        return o.biases ? c.add_arg(draw(name, DType::kF32, rows)) : -1;
    };
    int q = weight("q", o.q_heads * o.head_dim), qb = bias("q_bias", o.q_heads * o.head_dim);
    int k = weight("k", o.kv_heads * o.head_dim), kb = bias("k_bias", o.kv_heads * o.head_dim);
    int v = weight("v", o.kv_heads * o.v_head_dim), vb = bias("v_bias", o.kv_heads * o.v_head_dim);
    int qn = o.head_norms ? c.add_arg(draw("q_norm", DType::kF32, o.head_dim)) : -1;
    int kn = o.head_norms ? c.add_arg(draw("k_norm", DType::kF32, o.head_dim)) : -1;
    int table = c.add(draw("rope", DType::kF32, kContext * o.rotary));
    c.args.push_back({table, 0});
    c.args.push_back({table, 0});
    int q_out = draw.result("q_out", tokens * o.q_heads * o.head_dim);
    int kv = c.add_arg(draw("kv", kv_dtype, slab_elements(s.slab, kSlots, kContext)));
    for (int64_t n : {kSlots, kContext, kContext}) c.add_arg(n);
    c.add_arg(GuardedBuffer::integers("positions", batch.positions));
    c.add_arg(GuardedBuffer::integers("slots", batch.slots));
    c.add_arg(tokens);

    KernelCase::Result queries{q_out, {}}, cache{kv, {}};
    for (int64_t i = 0; i < c.operand(kv).count(); ++i) cache.want.push_back(c.operand(kv).at(i));
    for (int64_t t = 0; t < tokens; ++t) {
        Row row = read_row(c.operand(x), t, s.x, o.in);
        rms_norm(row, c.operand(norm), 1e-5, 0.0);
        int64_t position = batch.positions[static_cast<size_t>(t)],
                slot = batch.slots[static_cast<size_t>(t)];
        auto finish = [&](Row head, int norm_weight, double offset) {
            if (o.head_norms) rms_norm(head, c.operand(norm_weight), 1e-6, offset);
            rope(head, {o.rotary, o.interleaved}, c.operand(table), kContext, position);
            return head;
        };
        for (int64_t h = 0; h < o.q_heads; ++h) {
            Row head = finish(head_row(c, q, qb, h, o.head_dim, row), qn, 0.25);
            queries.want.insert(queries.want.end(), head.begin(), head.end());
        }
        for (int64_t h = 0; h < o.kv_heads; ++h) {
            Row key = finish(head_row(c, k, kb, h, o.head_dim, row), kn, 0.0);
            Row value = head_row(c, v, vb, h, o.v_head_dim, row);
            int64_t v_at = value_index(s.slab, kSlots, kContext, slot, 1 + h, position);
            for (int64_t i = 0; i < o.head_dim; ++i)
                cache.want[static_cast<size_t>(
                    key_index(s.slab, {kSlots, kContext, !host}, slot, 1 + h, position, i))] =
                    key[static_cast<size_t>(i)];
            std::copy(value.begin(), value.end(), cache.want.begin() + v_at);
        }
    }
    c.results = {queries, cache};
    c.tolerance = std::max(c.tolerance, narrowed_bound(kv_dtype));
    bounds(c, dtype);
    if (o.head_norms) c.matrix_tolerance *= 4;  // dividing by a norm enlarges what was lost before
    c.spec = s;
    return c;
}

// ---- Attention ----------------------------------------------------------------------------------------

struct AttentionOptions {
    int64_t heads = 4, first_head = 0, group = 2, head_dim = 16, v_head_dim = 16, window = 0;
    double softcap = 0.0;
    bool prefill = false;
};

// `batch` holds sequences of tokens with the same slot in a row.
KernelCase attention_case(bool host, DType dtype, const RaggedBatch& batch, AttentionOptions o) {
    KernelCase c;
    const int64_t tokens = batch.num_tokens();
    c.name = fmt::format("attention {}, {} of {} tokens, heads {}-{} in groups of {}, {}/{}{}{}",
                         o.prefill ? "prefill" : "decode", dtype, tokens, o.first_head,
                         o.first_head + o.heads, o.group, o.head_dim, o.v_head_dim,
                         o.window ? fmt::format(", window {}", o.window) : "",
                         o.softcap > 0 ? ", capped" : "");
    c.kind = KernelKind::kAttention;
    c.fused = {"attention"};
    Draw draw{c, std::mt19937(static_cast<uint32_t>(o.head_dim + tokens + o.heads))};
    AttentionSpec s;
    s.heads = {o.first_head, o.first_head + o.heads};
    s.group = o.group;
    s.scale = 1.0 / std::sqrt(static_cast<double>(o.head_dim));
    s.window = o.window;
    s.softcap = o.softcap;
    s.prefill = o.prefill;
    const int64_t slab_first = o.first_head / o.group;
    const int64_t slab_end = (o.first_head + o.heads + o.group - 1) / o.group;
    s.slab = {o.head_dim, o.v_head_dim, slab_end - slab_first, slab_first, dtype};
    s.q = {o.heads * o.head_dim + 8, 8};
    c.batch = batch;
    for (int64_t t = 0; t < tokens; ++t)
        if (t == 0 ||
            batch.slots[static_cast<size_t>(t)] != batch.slots[static_cast<size_t>(t - 1)])
            c.starts.push_back(static_cast<int32_t>(t));
    c.counts = {tokens, 1, static_cast<int64_t>(c.starts.size())};
    c.starts.push_back(static_cast<int32_t>(tokens));
    int q = c.add_arg(draw("q", DType::kF32, tokens * s.q.stride, 2.0));
    int kv = c.add_arg(draw("kv", dtype, slab_elements(s.slab, kSlots, kContext)));
    c.add_arg(kSlots);
    c.add_arg(kContext);
    int out = draw.result("out", tokens * o.heads * o.v_head_dim);
    c.add_arg(GuardedBuffer::integers("positions", batch.positions));
    c.add_arg(GuardedBuffer::integers("slots", batch.slots));
    c.add_arg(tokens);
    KernelCase::Result result{out, {}};
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < o.heads; ++h) {
            Row row =
                read_row(c.operand(q), t, {s.q.stride, s.q.offset + h * o.head_dim}, o.head_dim);
            Row y = attend(s, row, c.operand(kv), {kSlots, kContext, !host},
                           batch.slots[static_cast<size_t>(t)],
                           (o.first_head + h) / o.group - slab_first,
                           batch.positions[static_cast<size_t>(t)]);
            result.want.insert(result.want.end(), y.begin(), y.end());
        }
    c.results = {result};
    bounds(c, dtype);
    c.spec = s;
    return c;
}

// ---- Operators that stand alone -----------------------------------------------------------------------

KernelCase embedding_case(DType dtype, DType activations) {
    KernelCase c;
    c.activations = activations;
    c.name = fmt::format("embedding {}, activations {}", dtype, activations);
    c.kind = KernelKind::kEmbedding;
    c.fused = {"embedding"};
    Draw draw{c, std::mt19937(5)};
    const int64_t hidden = 36, rows = 10, first = 20;
    const std::vector<int32_t> ids = {20, 3, 29, 30, 25};
    c.counts = {5, 1, 1};
    c.spec = EmbeddingSpec{hidden, rows, dtype, 1.5f};
    c.add_arg(GuardedBuffer::integers("ids", ids));
    c.add_arg(first);
    int table = c.add_arg(draw("table", dtype, rows * hidden));
    int out = draw.result("out", 5 * hidden);
    KernelCase::Result result{out, {}};
    for (int32_t id : ids)
        for (int64_t i = 0; i < hidden; ++i)
            result.want.push_back(id >= first && id < first + rows
                                      ? 1.5 * c.operand(table).at((id - first) * hidden + i)
                                      : 0.0);
    c.results = {result};
    bounds(c, activations);
    return c;
}

KernelCase rms_norm_case(DType dtype, int64_t out, int64_t group) {
    KernelCase c;
    c.name = fmt::format("rms_norm {} of {} in groups of {}", dtype, out, group);
    c.kind = KernelKind::kRmsNorm;
    c.fused = {"rms_norm"};
    Draw draw{c, std::mt19937(6)};
    const int64_t tokens = 3;
    c.counts = {tokens, 1, 1};
    RmsNormSpec s{out, group, {dtype, 1e-5, 1.0}, {out + 5, 3}, RowCount::kTokens};
    int x = c.add_arg(draw("x", DType::kF32, tokens * (out + 5), 3.0));
    int weight = c.add_arg(draw("weight", dtype, group));
    int y = draw.result("out", tokens * out);
    KernelCase::Result result{y, {}};
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t g = 0; g < out; g += group) {
            Row row = read_row(c.operand(x), t, {out + 5, 3 + g}, group);
            rms_norm(row, c.operand(weight), 1e-5, 1.0);
            result.want.insert(result.want.end(), row.begin(), row.end());
        }
    c.results = {result};
    c.spec = s;
    return c;
}

KernelCase rope_case(int64_t rotary, bool interleaved) {
    KernelCase c;
    c.name = fmt::format("rope {}{}", rotary, interleaved ? " interleaved" : "");
    c.kind = KernelKind::kRope;
    c.fused = {"rope"};
    Draw draw{c, std::mt19937(7)};
    const int64_t dim = 20, heads = 3, tokens = 4;
    const std::vector<int32_t> positions = {0, 7, 149, 30};
    c.counts = {tokens, 1, 1};
    c.spec = RopeOnlySpec{heads * dim, dim, {rotary, interleaved}, {heads * dim + 4, 4}};
    int x = c.add_arg(draw("x", DType::kF32, tokens * (heads * dim + 4)));
    int table = c.add_arg(draw("table", DType::kF32, kContext * rotary));
    c.add_arg(kContext);
    c.add_arg(GuardedBuffer::integers("positions", positions));
    int y = draw.result("out", tokens * heads * dim);
    KernelCase::Result result{y, {}};
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < heads; ++h) {
            Row head = read_row(c.operand(x), t, {heads * dim + 4, 4 + h * dim}, dim);
            rope(head, {rotary, interleaved}, c.operand(table), kContext,
                 positions[static_cast<size_t>(t)]);
            result.want.insert(result.want.end(), head.begin(), head.end());
        }
    c.results = {result};
    return c;
}

KernelCase kv_append_case(bool host, DType dtype) {
    KernelCase c;
    c.name = fmt::format("kv_append {}", dtype);
    c.kind = KernelKind::kKvAppend;
    c.fused = {"kv_append"};
    Draw draw{c, std::mt19937(8)};
    const int64_t heads = 2, tokens = 4;
    RaggedBatch batch = RaggedBatch().add(2, 10, 3).add(0, 149, 1);
    KvAppendSpec s;
    s.kv_heads = {1, 3};
    s.slab = {12, 8, 3, 0, dtype};
    s.k = {32, 8};
    s.v = {16, 0};
    c.counts = {tokens, 1, 1};
    int k = c.add_arg(draw("k", DType::kF32, tokens * 32));
    int v = c.add_arg(draw("v", DType::kF32, tokens * 16));
    int kv = c.add_arg(draw("kv", dtype, slab_elements(s.slab, kSlots, kContext)));
    c.add_arg(kSlots);
    c.add_arg(kContext);
    c.add_arg(GuardedBuffer::integers("positions", batch.positions));
    c.add_arg(GuardedBuffer::integers("slots", batch.slots));
    KernelCase::Result result{kv, {}};
    for (int64_t i = 0; i < c.operand(kv).count(); ++i) result.want.push_back(c.operand(kv).at(i));
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < heads; ++h) {
            int64_t slot = batch.slots[static_cast<size_t>(t)],
                    position = batch.positions[static_cast<size_t>(t)];
            Row key = read_row(c.operand(k), t, {32, 8 + h * 12}, 12);
            Row value = read_row(c.operand(v), t, {16, h * 8}, 8);
            for (int64_t i = 0; i < 12; ++i)
                result.want[static_cast<size_t>(
                    key_index(s.slab, {kSlots, kContext, !host}, slot, 1 + h, position, i))] =
                    key[static_cast<size_t>(i)];
            std::copy(
                value.begin(), value.end(),
                result.want.begin() + value_index(s.slab, kSlots, kContext, slot, 1 + h, position));
        }
    c.results = {result};
    bounds(c, dtype);
    c.tolerance = narrowed_bound(dtype);
    c.spec = s;
    return c;
}

enum class Plain { kGated, kAdd, kScale, kSelect };

KernelCase plain_case(Plain which, int64_t n, DType activations) {
    KernelCase c;
    c.activations = activations;
    Draw draw{c, std::mt19937(9)};
    const int64_t tokens = 5;
    const std::vector<int32_t> rows = {1, 4};
    c.counts = {tokens, 2, 1};
    const View x{n + 4, 4}, y{n + 8, 0};
    int a = c.add_arg(draw("x", activations, tokens * x.stride, 3.0));
    int b = -1;
    if (which == Plain::kGated || which == Plain::kAdd)
        b = c.add_arg(draw("y", activations, tokens * y.stride, 3.0));
    if (which == Plain::kSelect) c.add_arg(GuardedBuffer::integers("rows", rows));
    int64_t made = which == Plain::kSelect ? 2 : tokens;
    int out = draw.result("out", made * n);
    KernelCase::Result result{out, {}};
    auto at = [&](int64_t t, int64_t i) { return c.operand(a).at(t * x.stride + x.offset + i); };
    auto other = [&](int64_t t, int64_t i) { return c.operand(b).at(t * y.stride + y.offset + i); };
    for (int64_t t = 0; t < made; ++t)
        for (int64_t i = 0; i < n; ++i) switch (which) {
                case Plain::kGated:
                    result.want.push_back(activate(Activation::kSilu, at(t, i)) * other(t, i));
                    break;
                case Plain::kAdd: result.want.push_back(at(t, i) + other(t, i)); break;
                case Plain::kScale: result.want.push_back(at(t, i) * 1.25); break;
                case Plain::kSelect:
                    result.want.push_back(at(rows[static_cast<size_t>(t)], i));
                    break;
            }
    switch (which) {
        case Plain::kGated:
            c.spec = GatedActivationSpec{n, Activation::kSilu, x, y};
            c.kind = KernelKind::kGatedActivation;
            break;
        case Plain::kAdd:
            c.spec = AddSpec{n, x, y, RowCount::kTokens};
            c.kind = KernelKind::kAdd;
            break;
        case Plain::kScale:
            c.spec = ScaleSpec{n, 1.25, x, RowCount::kTokens};
            c.kind = KernelKind::kScale;
            break;
        case Plain::kSelect:
            c.spec = SelectTokensSpec{n, x};
            c.kind = KernelKind::kSelectTokens;
            break;
    }
    c.name =
        fmt::format("{} of {}, activations {}", planner::kernel_kind_name(c.kind), n, activations);
    c.fused = {std::string(planner::kernel_kind_name(c.kind))};
    c.results = {result};
    bounds(c, activations);
    return c;
}

// ---- Between the steps of a plan ------------------------------------------------------------------------

KernelCase all_reduce_case(int64_t sources, int64_t out, bool residual, bool norm,
                           DType activations) {
    KernelCase c;
    c.activations = activations;
    c.name = fmt::format("all_reduce of {} x {}{}{}, activations {}", sources, out,
                         residual ? ", residual" : "", norm ? ", norm" : "", activations);
    Draw draw{c, std::mt19937(10)};
    const int64_t rows = 3;
    c.counts = {rows, 1, 1};
    AllReduceSpec s{out, sources, residual, {}};
    if (norm) s.norm = NormSpec{DType::kF32, 1e-5, 0.5};
    std::vector<int> partial;
    for (int64_t i = 0; i < sources; ++i)
        partial.push_back(c.add_arg(draw("partial", activations, rows * out)));
    int x = residual ? c.add_arg(draw("residual", activations, rows * out)) : -1;
    int sum = draw.result("out", rows * out);
    int weight = norm ? c.add_arg(draw("norm", DType::kF32, out)) : -1;
    int normed = norm ? draw.result("normed", rows * out) : -1;
    KernelCase::Result sums{sum, {}}, norms{normed, {}};
    for (int64_t t = 0; t < rows; ++t) {
        Row row(static_cast<size_t>(out), 0.0);
        for (int64_t i = 0; i < out; ++i) {
            for (int p : partial) row[static_cast<size_t>(i)] += c.operand(p).at(t * out + i);
            if (residual) row[static_cast<size_t>(i)] += c.operand(x).at(t * out + i);
        }
        sums.want.insert(sums.want.end(), row.begin(), row.end());
        if (norm) rms_norm(row, c.operand(weight), 1e-5, 0.5);
        norms.want.insert(norms.want.end(), row.begin(), row.end());
    }
    c.results = {sums};
    if (norm) c.results.push_back(norms);
    bounds(c, activations);
    c.helper = s;
    return c;
}

// Two rows whose largest value stands twice, and one of NaN and -infinity.
KernelCase argmax_case(int64_t vocabulary) {
    KernelCase c;
    c.name = fmt::format("argmax of {}", vocabulary);
    Draw draw{c, std::mt19937(11)};
    c.counts = {3, 3, 1};
    int logits = c.add_arg(draw("logits", DType::kF32, 3 * vocabulary));
    for (int64_t i : {vocabulary - 1, vocabulary / 2}) c.operand(logits).set(i, 2.0);
    c.operand(logits).set(vocabulary, 3.0);
    c.operand(logits).set(2 * vocabulary - 1, 3.0);
    for (int64_t i = 0; i < vocabulary; ++i)
        c.operand(logits).set(2 * vocabulary + i, i % 2 ? std::nan("") : i == 6 ? 1.0 : -HUGE_VAL);
    int tokens = c.add_arg(GuardedBuffer("tokens", DType::kInt32, 3));
    c.results = {{tokens, {static_cast<double>(vocabulary / 2), 0.0, 6.0}}};
    c.helper = ArgmaxSpec{vocabulary};
    return c;
}

KernelCase copy_case(DType from, DType to) {
    KernelCase c;
    c.name = fmt::format("copy {} to {}", from, to);
    Draw draw{c, std::mt19937(12)};
    const int64_t rows = 3, n = 36;
    c.counts = {rows, 1, 1};
    int source = c.add_arg(draw("from", from, rows * (n + 3)));
    c.add_arg(n + 3);
    int target = c.add_arg(GuardedBuffer("to", to, rows * n));
    c.add_arg(n);
    KernelCase::Result result{target, {}};
    for (int64_t t = 0; t < rows; ++t)
        for (int64_t i = 0; i < n; ++i)
            result.want.push_back(c.operand(source).at(t * (n + 3) + i));
    c.results = {result};
    bounds(c, to);
    c.tolerance = narrowed_bound(to);
    c.helper = CopySpec{n, from, to};
    return c;
}

}  // namespace

std::vector<std::function<KernelCase()>> all_cases(bool host) {
    std::vector<std::function<KernelCase()>> cases;
    auto add = [&](auto make) { cases.emplace_back(make); };
    const RaggedBatch one = RaggedBatch().add(1, 70, 1);
    const RaggedBatch few = RaggedBatch().add(1, 130, 1).add(0, 3, 1).add(2, 64, 1);
    const RaggedBatch many = RaggedBatch().add(2, 100, 19).add(0, 0, 5).add(1, 15, 17);
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        add([=] { return linear_case(dtype, 64, 96, 1, {.norm = true}); });
        add([=] { return linear_case(dtype, 172, 70, 3, {.bias = true, .residual = true}); });
        add([=] {
            return linear_case(dtype, 288, 90, 20,
                               {.norm = true, .bias = true, .residual = true, .scale = true});
        });
        add([=] {
            return linear_case(dtype, 100, 40, 2, {.norm = true, .select = true, .logits = true});
        });
        add([=] { return linear_case(dtype, 520, 33, 70, {.residual = true}); });
        add([=] { return gate_up_case(dtype, 64, 44, 1, Activation::kSilu, true); });
        add([=] { return gate_up_case(dtype, 132, 50, 18, Activation::kSilu, true); });
        add([=] { return qkv_case(host, dtype, dtype, one, {}); });
        add([=] { return qkv_case(host, dtype, dtype, many, {.biases = true}); });
        for (bool prefill : {false, true}) {
            const RaggedBatch& batch = prefill ? many : few;
            add([=] { return attention_case(host, dtype, batch, {.prefill = prefill}); });
            add([=] {
                return attention_case(host, dtype, batch,
                                      {.heads = 5,
                                       .first_head = 2,
                                       .group = 3,
                                       .head_dim = 80,
                                       .v_head_dim = 72,
                                       .window = 40,
                                       .softcap = 2.0,
                                       .prefill = prefill});
            });
        }
        add([=] { return embedding_case(dtype, DType::kF32); });
        add([=] { return rms_norm_case(dtype, 84, 28); });
        add([=] { return kv_append_case(host, dtype); });
    }
    for (bool interleaved : {false, true}) {
        add([=] { return rope_case(12, interleaved); });
        add([=] {
            return qkv_case(host, DType::kF32, DType::kF16, few,
                            {.in = 72,
                             .head_dim = 20,
                             .v_head_dim = 12,
                             .rotary = 12,
                             .interleaved = interleaved,
                             .head_norms = interleaved});
        });
        add([=] {
            return qkv_case(host, DType::kBF16, DType::kF32, many,
                            {.in = 72,
                             .head_dim = 20,
                             .v_head_dim = 12,
                             .rotary = 20,
                             .interleaved = interleaved,
                             .head_norms = !interleaved});
        });
    }
    for (Activation activation : {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu})
        add([=] { return gate_up_case(DType::kF32, 32, 20, 2, activation, false); });
    for (DType activations : {DType::kF32, DType::kF16, DType::kBF16})
        for (Plain which : {Plain::kGated, Plain::kAdd, Plain::kScale, Plain::kSelect})
            add([=] { return plain_case(which, 68, activations); });
    for (DType activations : {DType::kF16, DType::kBF16}) {
        add([=] {
            return linear_case(activations, 136, 56, 1, {.norm = true, .residual = true},
                               activations);
        });
        add([=] {
            return linear_case(activations, 136, 56, 24, {.norm = true, .residual = true},
                               activations);
        });
        add([=] { return embedding_case(activations, activations); });
    }
    add([=] {
        return attention_case(host, DType::kF16, few,
                              {.heads = 8, .group = 8, .head_dim = 128, .v_head_dim = 128});
    });
    add([=] {
        return attention_case(host, DType::kBF16, one,
                              {.heads = 2, .group = 1, .head_dim = 256, .v_head_dim = 256});
    });
    add([=] {
        return attention_case(
            host, DType::kF16, many,
            {.heads = 2, .group = 2, .head_dim = 128, .v_head_dim = 128, .prefill = true});
    });
    for (DType activations : {DType::kF32, DType::kBF16})
        for (bool norm : {false, true})
            add([=] { return all_reduce_case(norm ? 8 : 3, 300, !norm, norm, activations); });
    add([=] { return all_reduce_case(2, 1028, true, true, DType::kF16); });
    for (int64_t vocabulary : {40, 1003}) add([=] { return argmax_case(vocabulary); });
    add([=] { return copy_case(DType::kF32, DType::kF16); });
    add([=] { return copy_case(DType::kBF16, DType::kF32); });
    add([=] { return copy_case(DType::kF16, DType::kBF16); });
    return cases;
}

}  // namespace cleave::test
