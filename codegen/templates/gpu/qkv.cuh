// SPDX-License-Identifier: Apache-2.0
// [RmsNorm] Linear q, k, v [bias] [RmsNorm q, k per head] [Rope q, k], KV append: q goes to q_out, k and v straight
// to the cache. A block takes kRows features of one head. Rows 2p and 2p + 1 of its table are a pair that rope
// turns together ((p, p + rotary / 2), or neighbours), so that a head may be cut between any two pairs.
// Config: products.cuh's, kHeadDim, kVHeadDim, kQHeads, kKvHeads (of this step), kSlabHeads, kSlabOffset, QWeight,
// KWeight, VWeight, k{Q,K,V}Bias + {Q,K,V}Bias, kQNorm + QNormWeight + kQNormEpsilon + kQNormOffset, likewise for
// K, kQRotary, kKRotary (0: none), kQInterleaved, kKInterleaved, Kv, kXStride, kXOffset, kSharedBytes.
#pragma once

#include "kv_cache.cuh"
#include "products.cuh"

namespace cleave {

template <class C>
struct QkvArgs {
    const typename C::X* x = nullptr;
    const typename C::NormWeight* norm = nullptr;
    const typename C::QWeight* q_weight = nullptr;  // [kQHeads * kHeadDim, kIn]
    const typename C::QBias* q_bias = nullptr;
    const typename C::KWeight* k_weight = nullptr;  // [kKvHeads * kHeadDim, kIn]
    const typename C::KBias* k_bias = nullptr;
    const typename C::VWeight* v_weight = nullptr;  // [kKvHeads * kVHeadDim, kIn]
    const typename C::VBias* v_bias = nullptr;
    const typename C::QNormWeight* q_norm = nullptr;  // [kHeadDim]
    const typename C::KNormWeight* k_norm = nullptr;
    const float* q_rope = nullptr;  // [2, rope_context, kQRotary / 2]
    const float* k_rope = nullptr;
    typename C::X* q_out = nullptr;  // [num_tokens, kQHeads * kHeadDim]
    typename C::Kv* kv = nullptr;
    i64 num_slots = 0, context = 0, rope_context = 0;
    const i32* positions = nullptr;  // [num_tokens]
    const i32* slots = nullptr;
    i64 num_tokens = 0;
};

// Feature of a head at place j of the paired order.
template <i64 kRotary, bool kInterleaved>
DEVICE constexpr int paired_feature(int j) {
    constexpr int kHalf = int(kRotary) / 2;
    int pair = j / 2;
    if (kInterleaved || pair >= kHalf) return j;
    return pair + j % 2 * kHalf;
}

// What q, k and v differ in: W, bias, head norm, rope.
template <class W, class Bias, class NormWeight>
struct Projection {
    const W* weight;  // of the head, [dim, kIn]
    const Bias* bias;
    const NormWeight* norm;
    const float* cos;  // [rope_context, rotary / 2], sines behind
    int place;         // of the block's first row in the head's paired order
};

template <class C, i64 kDim, bool kBias, bool kNorm, i64 kRotary, bool kInterleaved, class W,
          class Bias, class NormWeight, class Store>
DEVICE void project(const QkvArgs<C>& a, float* shared, const Projection<W, Bias, NormWeight>& p,
                    float epsilon, float offset, const Store& store) {
    using P = Products<C, W>;
    static_assert(P::kSharedFloats * 4 + (C::kQNorm || C::kKNorm ? 4 * C::kTokens : 0) <=
                  C::kSharedBytes);
    static_assert(!kNorm || C::kRows >= kDim, "a head that is normalised stays whole");
    constexpr int kPairs = int(C::kRows) / 2;
    i64 t0 = i64(block_y()) * C::kTokens;
    int tokens = int(min<i64>(C::kTokens, a.num_tokens - t0));
    Rows<typename C::X> in{a.x + C::kXOffset, C::kXStride, nullptr};
    P products(shared);
    products.run(
        in, t0, tokens,
        [&](int j) {
            int feature = paired_feature<kRotary, kInterleaved>(min(p.place + j, int(kDim) - 1));
            return p.weight + feature * C::kIn;
        },
        a.norm);
    auto value = [&](int t, int j, int feature) {
        return products.at(t, j) * products.scale(t) + bias_at<kBias>(p.bias, feature);
    };
    float* head_scale = shared + P::kSharedFloats;  // [kTokens]
    if constexpr (kNorm) {
        for (int t = warp(); t < int(C::kTokens); t += int(C::kThreads) / WARP) {
            float sum = 0.0f;
            for (int j = lane(); t < tokens && j < int(kDim); j += WARP) {
                float v = value(t, j, paired_feature<kRotary, kInterleaved>(j));
                sum = fma(v, v, sum);
            }
            sum = warp_sum(sum);
            if (lane() == 0) head_scale[t] = rsqrt(sum * (1.0f / float(kDim)) + epsilon);
        }
        barrier();
    }
    for (int i = thread_x(); i < tokens * kPairs; i += int(C::kThreads)) {
        int t = i / kPairs, j = 2 * (i % kPairs), place = p.place + j;
        if (place >= int(kDim)) continue;
        int f0 = paired_feature<kRotary, kInterleaved>(place);
        int f1 = paired_feature<kRotary, kInterleaved>(place + 1);
        float v0 = value(t, j, f0), v1 = value(t, j + 1, f1);
        if constexpr (kNorm) {
            v0 *= head_scale[t] * (to_float(p.norm[f0]) + offset);
            v1 *= head_scale[t] * (to_float(p.norm[f1]) + offset);
        }
        if constexpr (kRotary > 0) {
            if (place < int(kRotary)) {
                i64 at = i64(a.positions[t0 + t]) * (kRotary / 2) + place / 2;
                float cos = p.cos[at], sin = p.cos[a.rope_context * (kRotary / 2) + at];
                float turned = v0 * cos - v1 * sin;
                v1 = v1 * cos + v0 * sin;
                v0 = turned;
            }
        }
        store(t0 + t, f0, v0);
        store(t0 + t, f1, v1);
    }
}

// Grid: heads of q, of k, of v, each cut in runs of kRows features; x kTokens tokens.
template <class C>
DEVICE void qkv(const QkvArgs<C>& a) {
    constexpr int kCuts = int(ceil_div<i64>(C::kHeadDim, C::kRows));
    constexpr int kVCuts = int(ceil_div<i64>(C::kVHeadDim, C::kRows));
    constexpr int kQBlocks = int(C::kQHeads) * kCuts, kKBlocks = int(C::kKvHeads) * kCuts;
    DYNAMIC_SHARED(float, shared);
    KvCache<C, typename C::Kv> cache{a.kv, a.num_slots, a.context};
    int block = block_x();
    if (block < kQBlocks) {
        int head = block / kCuts;
        Projection<typename C::QWeight, typename C::QBias, typename C::QNormWeight> p{
            a.q_weight + head * C::kHeadDim * C::kIn, a.q_bias + head * C::kHeadDim, a.q_norm,
            a.q_rope, block % kCuts * int(C::kRows)};
        project<C, C::kHeadDim, C::kQBias, C::kQNorm, C::kQRotary, C::kQInterleaved>(
            a, shared, p, C::kQNormEpsilon, C::kQNormOffset, [&](i64 t, int feature, float v) {
                a.q_out[(t * C::kQHeads + head) * C::kHeadDim + feature] =
                    from_float<typename C::X>(v);
            });
    } else if (block < kQBlocks + kKBlocks) {
        int head = (block - kQBlocks) / kCuts;
        Projection<typename C::KWeight, typename C::KBias, typename C::KNormWeight> p{
            a.k_weight + head * C::kHeadDim * C::kIn, a.k_bias + head * C::kHeadDim, a.k_norm,
            a.k_rope, (block - kQBlocks) % kCuts * int(C::kRows)};
        project<C, C::kHeadDim, C::kKBias, C::kKNorm, C::kKRotary, C::kKInterleaved>(
            a, shared, p, C::kKNormEpsilon, C::kKNormOffset, [&](i64 t, int feature, float v) {
                cache.key(a.slots[t], C::kSlabOffset + head, a.positions[t])[feature] =
                    from_float<typename C::Kv>(v);
            });
    } else {
        int head = (block - kQBlocks - kKBlocks) / kVCuts;
        Projection<typename C::VWeight, typename C::VBias, typename C::KNormWeight> p{
            a.v_weight + head * C::kVHeadDim * C::kIn, a.v_bias + head * C::kVHeadDim, nullptr,
            nullptr, (block - kQBlocks - kKBlocks) % kVCuts * int(C::kRows)};
        project<C, C::kVHeadDim, C::kVBias, false, 0, false>(
            a, shared, p, 0.0f, 0.0f, [&](i64 t, int feature, float v) {
                cache.value(a.slots[t], C::kSlabOffset + head, a.positions[t])[feature] =
                    from_float<typename C::Kv>(v);
            });
    }
}

}  // namespace cleave
