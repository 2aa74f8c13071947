// SPDX-License-Identifier: Apache-2.0
// The rows of the kernel table.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tests/simt/case_parts.h"
#include "tests/simt/kernel_case.h"

namespace cleave::test {

using namespace codegen;
using importer::Activation;
using planner::KernelKind;

namespace {

Row matrix_row(const Row& x, const GuardedBuffer& weight, int64_t rows, const GuardedBuffer* bias) {
    Row y;
    for (int64_t r = 0; r < rows; ++r) y.push_back(dot(weight, r, x, bias));
    return y;
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
    int table = c.add(draw("rope", DType::kF32, kCacheContext * o.rotary));
    c.args.push_back({table, 0});
    c.args.push_back({table, 0});
    int q_out = draw.result("q_out", tokens * o.q_heads * o.head_dim);
    int kv = c.add_arg(draw("kv", kv_dtype, slab_elements(s.slab, kCacheSlots, kCacheContext)));
    for (int64_t n : {kCacheSlots, kCacheContext, kCacheContext}) c.add_arg(n);
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
            rope(head, {o.rotary, o.interleaved}, c.operand(table), kCacheContext, position);
            return head;
        };
        for (int64_t h = 0; h < o.q_heads; ++h) {
            Row head = finish(head_row(c, q, qb, h, o.head_dim, row), qn, 0.25);
            queries.want.insert(queries.want.end(), head.begin(), head.end());
        }
        for (int64_t h = 0; h < o.kv_heads; ++h) {
            Row key = finish(head_row(c, k, kb, h, o.head_dim, row), kn, 0.0);
            Row value = head_row(c, v, vb, h, o.v_head_dim, row);
            int64_t v_at = value_index(s.slab, kCacheSlots, kCacheContext, slot, 1 + h, position);
            for (int64_t i = 0; i < o.head_dim; ++i)
                cache.want[static_cast<size_t>(key_index(
                    s.slab, {kCacheSlots, kCacheContext, !host}, slot, 1 + h, position, i))] =
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
    int kv = c.add_arg(draw("kv", dtype, slab_elements(s.slab, kCacheSlots, kCacheContext)));
    c.add_arg(kCacheSlots);
    c.add_arg(kCacheContext);
    int out = draw.result("out", tokens * o.heads * o.v_head_dim);
    c.add_arg(GuardedBuffer::integers("positions", batch.positions));
    c.add_arg(GuardedBuffer::integers("slots", batch.slots));
    c.add_arg(tokens);
    KernelCase::Result result{out, {}};
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < o.heads; ++h) {
            Row row =
                read_row(c.operand(q), t, {s.q.stride, s.q.offset + h * o.head_dim}, o.head_dim);
            Row y = attend(s, row, c.operand(kv), {kCacheSlots, kCacheContext, !host},
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
    // Chains of elementwise operators behind a launch's own.
    using Step = TailStep::Kind;
    const Tail sum = {{.kind = Step::kAdd, .other = View{80, 12}}};
    const Tail chain = {
        {.kind = Step::kScale, .factor = 0.7, .softcap = 3.0},
        {.kind = Step::kGated, .activation = Activation::kGeluTanh, .other = View{72, 4}},
        {.kind = Step::kAdd, .other = View{68, 0}},
        {.kind = Step::kAdd}};
    const Tail gate = {{.kind = Step::kGated, .activation = Activation::kRelu, .is_gate = true},
                       {.kind = Step::kGated, .is_gate = true, .other = View{69, 1}}};
    add([=] { return with_tail(rms_norm_case(DType::kF16, 68, 68), 68, sum); });
    add([=] { return with_tail(rms_norm_case(DType::kF32, 60, 20), 60, chain); });
    add([=] { return with_tail(rope_case(20, false), 60, sum); });
    for (DType activations : {DType::kF32, DType::kBF16}) {
        add([=] { return with_tail(plain_case(Plain::kGated, 68, activations), 68, sum); });
        add([=] { return with_tail(plain_case(Plain::kAdd, 68, activations), 68, chain); });
    }
    add([=] { return with_tail(plain_case(Plain::kScale, 68, DType::kF32), 68, gate); });
    add([=] { return with_tail(plain_case(Plain::kSelect, 68, DType::kF32), 68, sum); });
    for (int64_t tokens : {1, 24})
        add([=] {
            return with_tail(
                linear_case(DType::kF16, 136, 56, tokens,
                            {.norm = true, .residual = tokens > 1, .scale = true}, DType::kF32),
                56, chain);
        });
    add([=] {
        return with_tail(gate_up_case(DType::kF16, 72, 40, 9, Activation::kSilu, false), 40, gate);
    });
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

std::vector<std::function<KernelCase()>> warpgroup_cases() {
    const RaggedBatch many = RaggedBatch().add(2, 60, 49).add(0, 0, 5).add(1, 15, 17);
    return {
        [=] {
            return attention_case(
                false, DType::kF16, many,
                {.heads = 2, .group = 2, .head_dim = 128, .v_head_dim = 128, .prefill = true});
        },
        [=] {
            return attention_case(false, DType::kBF16, many,
                                  {.heads = 3,
                                   .first_head = 1,
                                   .group = 3,
                                   .head_dim = 72,
                                   .v_head_dim = 24,
                                   .window = 70,
                                   .softcap = 2.0,
                                   .prefill = true});
        },
        [] {
            return attention_case(
                false, DType::kBF16, RaggedBatch().add(1, 0, 130),
                {.heads = 1, .group = 1, .head_dim = 64, .v_head_dim = 256, .prefill = true});
        },
        [] {
            return linear_case(DType::kF16, 72, 130, 130,
                               {.norm = true, .residual = true, .scale = true});
        },
        [] { return linear_case(DType::kBF16, 200, 40, 64, {.bias = true}, DType::kBF16); },
        [] {
            return linear_case(DType::kBF16, 132, 70, 65,
                               {.norm = true, .select = true, .logits = true});
        },
        [] { return gate_up_case(DType::kBF16, 132, 50, 66, Activation::kSilu, true); },
        [=] {
            return qkv_case(false, DType::kF16, DType::kF16, many,
                            {.head_dim = 80, .v_head_dim = 72, .rotary = 80, .head_norms = true});
        },
        [=] {
            return qkv_case(false, DType::kBF16, DType::kBF16, many,
                            {.in = 72, .rotary = 16, .biases = true});
        },
    };
}

}  // namespace cleave::test
