// SPDX-License-Identifier: Apache-2.0
// [RmsNorm] Linear q, k, v [bias] [RmsNorm q, k per head] [Rope q, k], KV append: q goes to q_out,
// k and v straight to the cache. A block takes kRows features of one head. Rows 2p and 2p + 1 of
// its table are a pair that rope turns together ((p, p + rotary / 2), or neighbours), so that a
// head may be cut between any two pairs. Heads of a cache of 8 bits stay whole, as their scale
// depends on all features: they go to the cache from the table, a warp a token. Config:
// products.cuh's, kHeadDim, kVHeadDim, kQHeads, kKvHeads (of this step), kSlabHeads, kSlabOffset,
// Weight, k{Q,K,V}Bias + {Q,K,V}Bias, kQNorm + QNormWeight + kQNormEpsilon + kQNormOffset, likewise
// for K, kQRotary, kKRotary (0: none), kInterleaved, Kv, kXStride, kXOffset, kSharedBytes.
#pragma once

#include "kv_cache.cuh"
#include "products.cuh"

namespace cleave {

template <class C>
struct QkvArgs {
    const typename C::In* x = nullptr;
    const typename C::NormWeight* norm = nullptr;
    const typename C::Weight* q_weight = nullptr;  // [kQHeads * kHeadDim, kIn]
    const typename C::QBias* q_bias = nullptr;
    const typename C::Weight* k_weight = nullptr;  // [kKvHeads * kHeadDim, kIn]
    const typename C::KBias* k_bias = nullptr;
    const typename C::Weight* v_weight = nullptr;  // [kKvHeads * kVHeadDim, kIn]
    const typename C::VBias* v_bias = nullptr;
    const typename C::QNormWeight* q_norm = nullptr;  // [kHeadDim]
    const typename C::KNormWeight* k_norm = nullptr;
    const float* q_rope = nullptr;  // [2, rope_context, kQRotary / 2]
    const float* k_rope = nullptr;
    typename C::X* q_out = nullptr;  // [num_tokens, kQHeads * kHeadDim]
    typename C::Kv* kv = nullptr;
    i64 num_blocks = 0;
    const i32* blocks = nullptr;  // [slots, blocks_per_slot]
    i64 blocks_per_slot = 0, rope_context = 0;
    const i32* positions = nullptr;  // [num_tokens]
    const i32* slots = nullptr;
    i64 num_tokens = 0;
};

// A block's part of one head.
template <class C>
struct HeadPart {
    // Of no type of their own: operators on an enumeration are looked up again in every instance of
    // a template.
    static constexpr int kQuery = 0, kKey = 1, kValue = 2;
    int kind;
    int head, place;  // the first of its rows in the head's paired order

    static constexpr int kCuts = int(ceil_div<i64>(C::kHeadDim, C::kRows));
    static constexpr int kVCuts = int(ceil_div<i64>(C::kVHeadDim, C::kRows));
    static constexpr int kQBlocks = int(C::kQHeads) * kCuts, kKBlocks = int(C::kKvHeads) * kCuts;

    DEVICE explicit HeadPart(int block) {
        kind = block < kQBlocks ? kQuery : block < kQBlocks + kKBlocks ? kKey : kValue;
        block -= kind == kQuery ? 0 : kind == kKey ? kQBlocks : kQBlocks + kKBlocks;
        int cuts = kind == kValue ? kVCuts : kCuts;
        head = block / cuts;
        place = block % cuts * int(C::kRows);
    }
    DEVICE int dim() const { return int(kind == kValue ? C::kVHeadDim : C::kHeadDim); }
    DEVICE int rotary() const {
        return int(kind == kQuery ? C::kQRotary : kind == kKey ? C::kKRotary : 0);
    }
    DEVICE bool is_normed() const {
        return (C::kQNorm && kind == kQuery) || (C::kKNorm && kind == kKey);
    }
    static constexpr bool kScaled = KvElement<typename C::Kv>::kScaled;
    static_assert(!kScaled || (C::kRows >= C::kHeadDim && C::kRows >= C::kVHeadDim));
    // Whether its results go back to the table first.
    DEVICE bool is_scaled() const { return kScaled && kind != kQuery; }

    // Feature at place j of the paired order.
    DEVICE int feature(int j) const {
        int half = rotary() / 2, pair = j / 2;
        return C::kInterleaved || pair >= half ? j : pair + j % 2 * half;
    }
    // Place of feature f.
    DEVICE int place_of(int f) const {
        int half = rotary() / 2;
        return C::kInterleaved || f >= 2 * half ? f : f < half ? 2 * f : 2 * (f - half) + 1;
    }
    // Row of the head's feature f.
    DEVICE typename Weights<typename C::Weight>::Row row(const QkvArgs<C>& a, int f) const {
        const typename C::Weight* all =
            choose(kind == kQuery, a.q_weight, choose(kind == kKey, a.k_weight, a.v_weight));
        i64 heads = kind == kQuery ? C::kQHeads : C::kKvHeads;
        return Weights<typename C::Weight>::row(all, i64(head) * dim() + f, heads * dim(), C::kIn);
    }
    // Row j of the block's table; behind the head's last one that one once more.
    DEVICE typename Weights<typename C::Weight>::Row table_row(const QkvArgs<C>& a, int j) const {
        return row(a, feature(min(place + j, dim() - 1)));
    }
    DEVICE float bias(const QkvArgs<C>& a, int feature) const {
        if constexpr (!C::kQBias && !C::kKBias && !C::kVBias) return 0.0f;
        i64 i = i64(head) * dim() + feature;
        if (kind == kQuery) return bias_at<C::kQBias>(a.q_bias, i);
        if (kind == kKey) return bias_at<C::kKBias>(a.k_bias, i);
        return bias_at<C::kVBias>(a.v_bias, i);
    }
    DEVICE float norm_weight(const QkvArgs<C>& a, int feature) const {
        if (kind == kQuery) return bias_at<C::kQNorm>(a.q_norm, feature) + C::kQNormOffset;
        return bias_at<C::kKNorm>(a.k_norm, feature) + C::kKNormOffset;
    }
    // Two features of a token.
    DEVICE void store(const QkvArgs<C>& a, i64 t, int f0, float v0, int f1, float v1) const {
        if (kind == kQuery) {
            typename C::X* row = a.q_out + (t * C::kQHeads + head) * C::kHeadDim;
            row[f0] = from_float<typename C::X>(v0);
            row[f1] = from_float<typename C::X>(v1);
            return;
        }
        const auto rows = rows_of(a, t);
        const i32 position = a.positions[t];
        const i32 block = rows.block(position);
        auto* row = kind == kKey ? rows.key(block, position) : rows.value(block, position);
        row[f0] = from_float<typename C::Kv>(v0);
        row[f1] = from_float<typename C::Kv>(v1);
        kv_wrote(row + f0, 1);
        kv_wrote(row + f1, 1);
    }
    DEVICE KvRows<C, typename C::Kv> rows_of(const QkvArgs<C>& a, i64 t) const {
        const KvCache<C, typename C::Kv> cache{a.kv, a.num_blocks, a.blocks, a.blocks_per_slot};
        return cache.rows(a.slots[t], C::kSlabOffset + head);
    }
    // By a warp: a token's row of 8 bits, whose features are value(place).
    template <class Value>
    DEVICE void store_scaled(const QkvArgs<C>& a, i64 t, const Value& value) const {
        const auto rows = rows_of(a, t);
        const i32 position = a.positions[t], block = rows.block(position);
        auto feature = [&](int f) { return value(place_of(f)); };
        if (kind == kKey)
            write_scaled_row<int(C::kHeadDim), kv_run<C>()>(
                rows.key(block, position), rows.key_scale(block, position), feature);
        else
            write_scaled_row<int(C::kVHeadDim), kv_run<C>()>(
                rows.value(block, position), rows.value_scale(block, position), feature);
    }
};

// Before the launches before it have ended: weights alone.
template <class C>
DEVICE void qkv_ahead(const QkvArgs<C>& a) {
    const HeadPart<C> part(block_x());
    DYNAMIC_SHARED(float, shared);
    Products<C, typename C::Weight>(shared).ahead([&](int j) { return part.table_row(a, j); });
}

// Grid: heads of q, of k, of v, each cut in runs of kRows features; x kTokens tokens.
template <class C>
DEVICE void qkv(const QkvArgs<C>& a) {
    using P = Products<C, typename C::Weight>;
    constexpr bool kHeadNorms = C::kQNorm || C::kKNorm;
    static_assert(P::kSharedFloats * 4 + (kHeadNorms ? 4 * C::kTokens : 0) <= C::kSharedBytes);
    static_assert(!kHeadNorms || C::kRows >= C::kHeadDim, "a normalised head stays whole");
    constexpr int kPairs = int(C::kRows) / 2;
    DYNAMIC_SHARED(float, shared);
    const BlockPlace block = block_place<C>();
    const HeadPart<C> part(block.column);
    const int dim = part.dim();
    i64 t0 = i64(block.tile) * C::kTokens;
    int tokens = int(min<i64>(C::kTokens, a.num_tokens - t0));
    Rows<typename C::In> in{a.x + C::kXOffset, C::kXStride, nullptr, a.num_tokens};
    P products(shared);
    products.run(in, t0, tokens, [&](int j) { return part.table_row(a, j); }, a.norm);
    auto value = [&](int t, int j, int feature, float scale) {
        return products.at(t, j) * scale + part.bias(a, feature);
    };
    float* head_scale = shared + P::kSharedFloats;  // [kTokens]
    if constexpr (kHeadNorms) {
        float epsilon = part.kind == HeadPart<C>::kQuery ? C::kQNormEpsilon : C::kKNormEpsilon;
        for (int t = warp(); t < int(C::kTokens); t += int(C::kThreads) / WARP) {
            float sum = 0.0f, scale = products.scale(t);
            for (int j = lane(); t < tokens && j < dim; j += WARP) {
                float v = value(t, j, part.feature(j), scale);
                sum = fma(v, v, sum);
            }
            sum = warp_sum(sum);
            if (lane() == 0) head_scale[t] = rsqrt(sum * (1.0f / float(C::kHeadDim)) + epsilon);
        }
        barrier();
    }
    constexpr int kAtOnce = Finish<C, 1>::kAtOnce, kStep = int(C::kThreads);
    const float* table = choose(part.kind == HeadPart<C>::kQuery, a.q_rope, a.k_rope);
    const int half = part.rotary() / 2, end = tokens * kPairs;
    for (int first = thread_x(); first < end; first += kStep * kAtOnce) {
        float cos[kAtOnce], sin[kAtOnce];
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            const int i = first + n * kStep, place = part.place + 2 * (i % kPairs);
            if (i >= end || place >= part.rotary()) continue;
            const i64 at = i64(a.positions[t0 + i / kPairs]) * half + place / 2;
            cos[n] = table[at];
            sin[n] = table[a.rope_context * half + at];
        }
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            const int i = first + n * kStep, t = i / kPairs, j = 2 * (i % kPairs);
            const int place = part.place + j;
            if (i >= end || place >= dim) continue;
            int f0 = part.feature(place), f1 = part.feature(place + 1);
            float scale = products.scale(t);
            float v0 = value(t, j, f0, scale), v1 = value(t, j + 1, f1, scale);
            if constexpr (kHeadNorms) {
                if (part.is_normed()) {
                    v0 *= head_scale[t] * part.norm_weight(a, f0);
                    v1 *= head_scale[t] * part.norm_weight(a, f1);
                }
            }
            if (place < part.rotary()) {
                float turned = v0 * cos[n] - v1 * sin[n];
                v1 = v1 * cos[n] + v0 * sin[n];
                v0 = turned;
            }
            if (part.is_scaled()) {
                products.set(t, j, v0);
                products.set(t, j + 1, v1);
            } else {
                part.store(a, t0 + t, f0, v0, f1, v1);
            }
        }
    }
    if constexpr (HeadPart<C>::kScaled) {
        if (!part.is_scaled()) return;
        barrier();
        for (int t = warp(); t < tokens; t += int(C::kThreads) / WARP)
            part.store_scaled(a, t0 + t, [&](int place) { return products.at(t, place); });
    }
}

}  // namespace cleave
