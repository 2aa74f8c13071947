// SPDX-License-Identifier: Apache-2.0
// The rows of the kernel table: attention, and the list of all.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tests/simt/case_parts.h"
#include "tests/simt/kernel_case.h"

namespace cleave::test {

using namespace codegen;
using importer::Activation;
using importer::Packing;

using planner::KernelKind;

namespace {

struct AttentionOptions {
    int64_t heads = 4, first_head = 0, group = 2, head_dim = 16, v_head_dim = 16, window = 0;
    double softcap = 0.0;
    bool prefill = false;
    // The first key has nearly all of the weight and no value, the others e^-11 each and large
    // ones.
    bool sink = false;
    // Tokens in front that are alone in their sequences are another launch's.
    bool leaves_singles = false;
};

// Feature 0 of queries and keys alone makes the scores, but for an eighth of what the others would.
void make_sink(const AttentionSpec& s, const SlabPlace& place, GuardedBuffer& q,
               GuardedBuffer& kv) {
    constexpr double kQuery = 8, kScore = 11, kValue = 400;
    for (int64_t i = s.q.offset; i < q.count(); i += s.q.stride)
        for (int64_t head = 0; head < s.heads.end - s.heads.begin; ++head)
            q.set(i + head * s.slab.head_dim, kQuery);
    for (int64_t slot = 0; slot < kCacheSlots; ++slot)
        for (int64_t head = 0; head < s.slab.heads; ++head)
            for (int64_t position = 0; position < kCacheContext; ++position) {
                const SlabRow key{false, slot, head, position}, value{true, slot, head, position};
                Row features;
                for (int64_t d = 0; d < s.slab.head_dim; ++d)
                    features.push_back(d > 0          ? slab_at(kv, s.slab, place, key, d) / 8
                                       : position > 0 ? 0
                                                      : kScore / s.scale / kQuery);
                set_row(kv, s.slab, place, key, features);
                features.clear();
                for (int64_t d = 0; d < s.slab.v_head_dim; ++d)
                    features.push_back(position > 0 ? kValue + slab_at(kv, s.slab, place, value, d)
                                                    : 0);
                set_row(kv, s.slab, place, value, features);
            }
}

// Sizes that are no multiples of a tile's, in groups that do not divide the heads.
AttentionOptions odd_heads(bool prefill) {
    return {.heads = 5,
            .first_head = 2,
            .group = 3,
            .head_dim = 80,
            .v_head_dim = 72,
            .window = 40,
            .softcap = 2.0,
            .prefill = prefill};
}

// Heads of 128 elements that share one head of keys and values.
AttentionOptions wide_heads(int64_t heads, bool prefill) {
    return {.heads = heads, .group = heads, .head_dim = 128, .v_head_dim = 128, .prefill = prefill};
}

// `batch` holds sequences of tokens with the same slot in a row.
KernelCase attention_case(bool host, DType dtype, const RaggedBatch& batch, AttentionOptions o,
                          DType activations = DType::kF32) {
    KernelCase c;
    c.activations = activations;
    const int64_t tokens = batch.num_tokens();
    c.name = fmt::format(
        "attention {}, {} of {} tokens, heads {}-{} in groups of {}, {}/{}{}{}, "
        "activations {}",
        o.prefill ? "prefill" : "decode", dtype, tokens, o.first_head, o.first_head + o.heads,
        o.group, o.head_dim, o.v_head_dim, o.window ? fmt::format(", window {}", o.window) : "",
        o.softcap > 0 ? ", capped" : "", activations);
    if (o.sink) c.name += ", a sink";
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
    c.counts = {tokens, 1, static_cast<int64_t>(c.starts.size()), batch.num_singles()};
    c.starts.push_back(static_cast<int32_t>(tokens));
    int q = c.add_arg(draw("q", activations, tokens * s.q.stride, 2.0));
    SlabPlace place = cache_place(host);
    if (!o.sink) share_first_block(place, 1, 2);
    int kv = add_cache(draw, s.slab, place);
    if (o.sink) make_sink(s, place, c.operand(q), c.operand(kv));
    int out = draw.result("out", tokens * o.heads * o.v_head_dim);
    c.add_arg(GuardedBuffer::integers("positions", batch.positions));
    c.add_arg(GuardedBuffer::integers("slots", batch.slots));
    if (!host && !o.leaves_singles) c.counts.singles = 0;
    if (o.prefill) c.add_arg(c.counts.singles);
    c.add_arg(tokens);
    KernelCase::Result result{out, {}, o.v_head_dim};
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t h = 0; h < o.heads; ++h) {
            Row row =
                read_row(c.operand(q), t, {s.q.stride, s.q.offset + h * o.head_dim}, o.head_dim);
            Row y = attend(s, row, c.operand(kv), place, batch.slots[static_cast<size_t>(t)],
                           (o.first_head + h) / o.group - slab_first,
                           batch.positions[static_cast<size_t>(t)]);
            if (o.leaves_singles && t < c.counts.singles)
                std::fill(y.begin(), y.end(), std::nan(""));
            result.want.insert(result.want.end(), y.begin(), y.end());
        }
    c.results = {result};
    bounds(c, dtype);
    c.spec = s;
    return c;
}

// Of one token, of few, and of prompts.
RaggedBatch one_token() { return RaggedBatch().add(1, 70, 1); }
RaggedBatch few_tokens() { return RaggedBatch().add(1, 130, 1).add(0, 3, 1).add(2, 64, 1); }
RaggedBatch many_tokens() { return RaggedBatch().add(2, 100, 19).add(0, 0, 5).add(1, 15, 17); }
RaggedBatch singles_and_tokens() { return RaggedBatch().add(1, 70, 1).add(0, 15, 1).add(2, 9, 19); }

// Quantised matrices: each kind of code, of zero points and of scales; rows that end within a
// group of codes.
constexpr QuantizedCase kFour{Packing::kMatMulNBits, DType::kUInt4,  0, 0, 32,
                              DType::kF16,           Zeros::kInteger};
constexpr QuantizedCase kEight{Packing::kMatMulNBits, DType::kUInt8,   0, 0, 16,
                               DType::kF32,           Zeros::kFloating};
constexpr QuantizedCase kByRow{
    Packing::kDequantizeLinear, DType::kInt8, 0, 0, 0, DType::kF32, Zeros::kNone, true};
constexpr QuantizedCase kFloatingCodes{
    Packing::kDequantizeLinear, DType::kF8E4M3, 0, 0, 24, DType::kBF16};
constexpr QuantizedCase kFourSigned{
    Packing::kDequantizeLinear, DType::kInt4, 0, 0, 24, DType::kF16, Zeros::kNone, true};
constexpr QuantizedCase kMxfp4{
    Packing::kDequantizeLinear, DType::kMxfp4, 0, 0, 32, DType::kF8E8M0, Zeros::kNone, true};

// Each kernel in each type of plain weights.
void add_plain_cases(Cases& cases, bool host) {
    auto add = [&](const auto& make) { cases.emplace_back(make); };
    const RaggedBatch one = one_token();
    const RaggedBatch few = few_tokens();
    const RaggedBatch many = many_tokens();
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
            if (prefill) {
                add([=] {
                    return attention_case(host, dtype, batch, {.prefill = true, .sink = true});
                });
                add([=] {
                    return attention_case(host, dtype, singles_and_tokens(),
                                          {.prefill = true, .leaves_singles = !host});
                });
            }
            add([=] { return attention_case(host, dtype, batch, odd_heads(prefill)); });
        }
        add([=] { return embedding_case(dtype, 36, DType::kF32); });
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
    for (const RaggedBatch& batch : {one, many})  // a norm elsewhere, as OLMo 2 has it
        add([=] { return qkv_case(host, DType::kF16, DType::kF32, batch, {.norm = false}); });
    for (Activation activation :
         {Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu, Activation::kRelu2})
        add([=] { return gate_up_case(DType::kF32, 32, 20, 2, activation, false); });
    for (DType activations : {DType::kF32, DType::kF16, DType::kBF16})
        for (Plain which : {Plain::kGated, Plain::kAdd, Plain::kScale, Plain::kSelect})
            add([=] { return plain_case(which, 68, activations); });
}

void add_epilogue_cases(Cases& cases) {
    auto add = [&](const auto& make) { cases.emplace_back(make); };
    // Chains of elementwise operators behind a launch's own.
    using Step = EpilogueStep::Kind;
    const Epilogue sum = {{.kind = Step::kAdd, .other = View{80, 12}}};
    const Epilogue chain = {
        {.kind = Step::kScale, .factor = 0.7, .softcap = 3.0},
        {.kind = Step::kGated, .activation = Activation::kGeluTanh, .other = View{72, 4}},
        {.kind = Step::kAdd, .other = View{68, 0}},
        {.kind = Step::kAdd}};
    const Epilogue gate = {{.kind = Step::kGated, .activation = Activation::kRelu, .is_gate = true},
                           {.kind = Step::kGated, .is_gate = true, .other = View{69, 1}}};
    add([=] { return with_epilogue(rms_norm_case(DType::kF16, 68, 68), 68, sum); });
    add([=] { return with_epilogue(rms_norm_case(DType::kF32, 60, 20), 60, chain); });
    add([=] { return with_epilogue(rope_case(20, false), 60, sum); });
    for (DType activations : {DType::kF32, DType::kBF16}) {
        add([=] { return with_epilogue(plain_case(Plain::kGated, 68, activations), 68, sum); });
        add([=] { return with_epilogue(plain_case(Plain::kAdd, 68, activations), 68, chain); });
    }
    add([=] { return with_epilogue(plain_case(Plain::kScale, 68, DType::kF32), 68, gate); });
    add([=] { return with_epilogue(plain_case(Plain::kSelect, 68, DType::kF32), 68, sum); });
    for (int64_t tokens : {1, 24})
        add([=] {
            return with_epilogue(
                linear_case(DType::kF16, 136, 56, tokens,
                            {.norm = true, .residual = tokens > 1, .scale = true}, DType::kF32),
                56, chain);
        });
    add([=] {
        return with_epilogue(gate_up_case(DType::kF16, 72, 40, 9, Activation::kSilu, false), 40,
                             gate);
    });
}

// Activations of 16 bits, and rings of weights.
void add_narrow_cases(Cases& cases, bool host) {
    auto add = [&](const auto& make) { cases.emplace_back(make); };
    const RaggedBatch one = one_token();
    const RaggedBatch few = few_tokens();
    const RaggedBatch many = many_tokens();
    for (DType activations : {DType::kF16, DType::kBF16}) {
        add([=] {
            return linear_case(activations, 136, 56, 1, {.norm = true, .residual = true},
                               activations);
        });
        add([=] {
            return linear_case(activations, 136, 56, 24, {.norm = true, .residual = true},
                               activations);
        });
        add([=] { return embedding_case(activations, 36, activations); });
        const bool brain = activations == DType::kBF16;  // by turns: head norms, biases, windows
        add([=] {
            return qkv_case(host, activations, activations, one,
                            {.interleaved = brain, .head_norms = brain}, activations);
        });
        add([=] {
            return qkv_case(host, activations, activations, many,
                            {.head_norms = !brain, .biases = brain}, activations);
        });
        for (int64_t tokens : {1, 18})
            add([=] {
                return gate_up_case(activations, 64, 44, tokens, Activation::kSilu, true,
                                    activations);
            });
        for (bool prefill : {false, true})
            add([=] {
                return attention_case(
                    host, activations, prefill ? many : few,
                    {.head_dim = 24, .window = brain ? 40 : 0, .prefill = prefill}, activations);
            });
    }
    // Rings of weights (tests/simt/weight_ring_test.cpp): they come round, over rows that end
    // within a slot.
    add([=] { return linear_case(DType::kBF16, 1032, 400, 1, {.norm = true, .residual = true}); });
    add([=] { return linear_case(DType::kF16, 512, 790, 3, {.select = true, .logits = true}); });
    add([=] { return gate_up_case(DType::kF32, 260, 300, 2, Activation::kSilu, false); });
}

void add_quantized_cases(Cases& cases, bool host) {
    auto add = [&](const auto& make) { cases.emplace_back(make); };
    const RaggedBatch one = one_token();
    const RaggedBatch many = many_tokens();
    int64_t columns = 33;
    for (const QuantizedCase& q : {kFour, kEight, kByRow, kFloatingCodes, kFourSigned, kMxfp4}) {
        for (int64_t tokens : {2, 20})
            add([=] {
                return linear_case(q, columns, 21, tokens, {.norm = tokens > 2, .residual = true});
            });
        columns += 67;
    }
    // Rows that are larger than f16 holds, among others, where activations become f16.
    add([=] { return linear_case(DType::kF16, 288, 70, 20, {.residual = true, .beyond = true}); });
    add([=] { return linear_case(DType::kF16, 136, 40, 18, {.norm = true, .beyond = true}); });
    add([=] { return linear_case(DType::kF8E4M3, 104, 33, 20, {.bias = true, .beyond = true}); });
    add([=] { return linear_case(kFour, 96, 21, 20, {.scale = true, .beyond = true}); });
    add([=] { return linear_case(kByRow, 72, 40, 36, {.beyond = true}, DType::kBF16); });
    add([=] {
        return gate_up_case(DType::kF16, 100, 30, 18, Activation::kSilu, false, DType::kF32, false,
                            true);
    });
    add([=] {
        return gate_up_case(kByRow, 64, 20, 24, Activation::kSilu, true, DType::kF32, false, true);
    });
    add([=] {
        return qkv_case(host, DType::kF16, DType::kF32, many,
                        {.biases = true, .norm = false, .beyond = true});
    });
    for (const QuantizedCase& q : {kFour, kEight, kFloatingCodes, kMxfp4})
        add([=] { return embedding_case(q, 48 + q.block, DType::kF32); });
    for (int64_t tokens : {1, 18}) {
        add([=] { return gate_up_case(kFour, 96, 30, tokens, Activation::kSilu, false); });
        add([=] { return gate_up_case(kMxfp4, 96, 30, tokens, Activation::kSilu, true); });
        add([=] {
            return gate_up_case(kFloatingCodes, 96, 30, tokens, Activation::kSilu, true,
                                DType::kBF16);
        });
    }
    add([=] { return qkv_case(host, kFour, DType::kF16, one, {.in = 100}); });
    add([=] { return qkv_case(host, kByRow, DType::kF32, many, {.in = 72}); });
    add([=] { return qkv_case(host, kMxfp4, DType::kF16, many, {.in = 100}); });
    add([=] { return linear_case(kFour, 136, 40, 1, {.norm = true}, DType::kF16); });
}

// A cache of 8 bits.
void add_scaled_cases(Cases& cases, bool host) {
    auto add = [&](const auto& make) { cases.emplace_back(make); };
    const RaggedBatch one = one_token();
    const RaggedBatch few = few_tokens();
    const RaggedBatch many = many_tokens();
    for (DType dtype : {DType::kInt8, DType::kF8E4M3}) {
        const bool integers = dtype == DType::kInt8;  // by turns: head norms, biases, activations
        add([=] { return kv_append_case(host, dtype); });
        add([=] { return qkv_case(host, DType::kF16, dtype, one, {}); });
        add([=] { return qkv_case(host, DType::kF32, dtype, many, {.biases = integers}); });
        add([=] {
            return qkv_case(host, DType::kBF16, dtype, integers ? few : many,
                            {.in = 72,
                             .head_dim = 20,
                             .v_head_dim = 12,
                             .rotary = 12,
                             .interleaved = integers,
                             .head_norms = !integers});
        });
        for (bool prefill : {false, true}) {
            const RaggedBatch& batch = prefill ? many : few;
            add([=] { return attention_case(host, dtype, batch, {.prefill = prefill}); });
            add([=] { return attention_case(host, dtype, batch, odd_heads(prefill)); });
            add([=] {
                return attention_case(host, dtype, batch, wide_heads(8, prefill),
                                      integers ? DType::kF32 : DType::kBF16);
            });
        }
        add([=] {
            return attention_case(host, dtype, many,
                                  {.head_dim = 6, .prefill = true, .sink = true});
        });
    }
}

// Wide heads, exchanges, copies, and prepared activations as they are made.
void add_other_cases(Cases& cases, bool host) {
    auto add = [&](const auto& make) { cases.emplace_back(make); };
    const RaggedBatch one = one_token();
    const RaggedBatch few = few_tokens();
    const RaggedBatch many = many_tokens();
    add([=] { return attention_case(host, DType::kF16, few, wide_heads(8, false)); });
    add([=] {
        return attention_case(host, DType::kBF16, one,
                              {.heads = 2, .group = 1, .head_dim = 256, .v_head_dim = 256});
    });
    add([=] { return attention_case(host, DType::kF16, many, wide_heads(2, true)); });
    for (DType activations : {DType::kF32, DType::kBF16})
        for (bool norm : {false, true})
            add([=] { return all_reduce_case(norm ? 8 : 3, 300, !norm, norm, activations); });
    add([=] { return all_reduce_case(2, 1028, true, true, DType::kF16); });
    for (int64_t vocabulary : {40, 1003}) add([=] { return argmax_case(vocabulary); });
    add([=] { return copy_case(DType::kF32, DType::kF16); });
    add([=] { return copy_case(DType::kBF16, DType::kF32); });
    add([=] { return copy_case(DType::kF16, DType::kBF16); });
    // Prepared activations, and how they are made; rows longer than a block's threads take at once.
    add([=] { return prepare_case(DType::kF32, DType::kBF16, 72, true, false); });
    add([=] { return prepare_case(DType::kF32, DType::kF16, 1544, true, true); });
    add([=] { return prepare_case(DType::kBF16, DType::kF16, 1544, false, false); });
    add([=] { return prepare_case(DType::kBF16, DType::kF16, 1544, false, false, true); });
    add([=] { return prepare_case(DType::kF32, DType::kF16, 72, true, true, true); });
}

// Products of prepared activations, which GPUs alone have.
void add_prepared_cases(Cases& cases, bool host) {
    auto add = [&](const auto& make) { cases.emplace_back(make); };
    const RaggedBatch many = many_tokens();
    add([=] {
        return linear_case(DType::kBF16, 296, 90, 20,
                           {.bias = true, .residual = true, .prepared = true});
    });
    add([=] { return linear_case(DType::kF16, 104, 33, 70, {.prepared = true}, DType::kF16); });
    add([=] { return linear_case(kFour, 136, 21, 20, {.scale = true, .prepared = true}); });
    add([=] {
        return gate_up_case(DType::kF16, 136, 50, 18, Activation::kSilu, false, DType::kF32, true);
    });
    for (DType dtype : {DType::kBF16, DType::kF16})
        add([=] {
            return qkv_case(host, dtype, DType::kF32, many,
                            {.in = 72, .biases = true, .norm = false, .prepared = true});
        });
}

}  // namespace

Cases all_cases(bool host) {
    Cases cases;
    add_plain_cases(cases, host);
    add_epilogue_cases(cases);
    add_narrow_cases(cases, host);
    add_quantized_cases(cases, host);
    add_other_cases(cases, host);
    if (!host) add_prepared_cases(cases, host);
    add_scaled_cases(cases, host);
    return cases;
}

namespace {

Cases warpgroup_attention_cases() {
    const RaggedBatch many = RaggedBatch().add(2, 60, 49).add(0, 0, 5).add(1, 15, 17);
    return {
        [=] { return attention_case(false, DType::kF16, many, wide_heads(2, true)); },
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
        [=] {
            return attention_case(
                false, DType::kF16, many,
                {.heads = 4, .head_dim = 64, .v_head_dim = 64, .window = 40, .prefill = true});
        },
        [] {
            return attention_case(
                false, DType::kBF16, RaggedBatch().add(1, 33, 1).add(0, 7, 1).add(2, 0, 70),
                {.head_dim = 64, .v_head_dim = 64, .prefill = true, .leaves_singles = true});
        },
        [] {
            return attention_case(
                false, DType::kBF16, RaggedBatch().add(1, 0, 130),
                {.heads = 1, .group = 1, .head_dim = 64, .v_head_dim = 256, .prefill = true});
        },
        [=] {
            return attention_case(
                false, DType::kF16, many,
                {.head_dim = 64, .v_head_dim = 64, .prefill = true, .sink = true});
        },
        [=] { return attention_case(false, DType::kInt8, many, wide_heads(2, true)); },
        [=] {
            return attention_case(false, DType::kF8E4M3, many,
                                  {.heads = 3,
                                   .first_head = 1,
                                   .group = 3,
                                   .head_dim = 72,
                                   .v_head_dim = 24,
                                   .window = 70,
                                   .softcap = 2.0,
                                   .prefill = true});
        },
        [=] {
            return attention_case(
                false, DType::kInt8, RaggedBatch().add(1, 0, 130),
                {.head_dim = 64, .v_head_dim = 64, .prefill = true, .sink = true});
        },
    };
}

}  // namespace

Cases warpgroup_cases() {
    Cases cases = warpgroup_attention_cases();
    add_warpgroup_products(cases);
    return cases;
}

}  // namespace cleave::test
