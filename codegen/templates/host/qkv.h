// SPDX-License-Identifier: Apache-2.0
// [RmsNorm] Linear q, k, v [bias] [RmsNorm q, k per head] [Rope q, k], KV append. Item: one head of
// q, k or v of every token, in that order; q goes to `q_out`, k and v go straight to the cache.
// Config: kIn, kTokens, kReproducible, kFast, kHeadDim, kVHeadDim, kQHeads, kKvHeads (of this
// step), kSlabHeads and kSlabOffset, QWeight.., kQBias + QBias.., kNorm.., kQNorm + QNormWeight +
// kQNormEpsilon + kQNormOffset, likewise kKNorm.., kQRotary, kKRotary (0: none), kQInterleaved,
// kKInterleaved, Kv, kXStride, kXOffset.
#pragma once

#include "kv_cache.h"
#include "linear.h"
#include "rope.h"

namespace cleave {

template <class Config>
struct QkvArgs {
    const float* x;                            // [tokens, kXStride]
    const typename Config::NormWeight* norm;   // [kIn], or null
    const typename Config::QWeight* q_weight;  // [kQHeads * kHeadDim, kIn]
    const typename Config::QBias* q_bias;
    const typename Config::KWeight* k_weight;  // [kKvHeads * kHeadDim, kIn]
    const typename Config::KBias* k_bias;
    const typename Config::VWeight* v_weight;  // [kKvHeads * kVHeadDim, kIn]
    const typename Config::VBias* v_bias;
    const typename Config::QNormWeight* q_norm;  // [kHeadDim], or null
    const typename Config::KNormWeight* k_norm;
    const float* q_rope;  // [2, rope_context, kQRotary / 2], or null
    const float* k_rope;
    i64 rope_context;
    float* q_out;  // [tokens, kQHeads * kHeadDim]
    typename Config::Kv* kv;
    i64 num_blocks;
    const i32* blocks;  // [slots, blocks_per_slot]
    i64 blocks_per_slot;
    const i32* positions;  // [tokens]
    const i32* slots;      // [tokens]
    i64 num_tokens;
};

template <class Config>
using QkvScratch = ProductScratch<Config, typename Config::QWeight, typename Config::KWeight,
                                  typename Config::VWeight>;
template <class Config>
constexpr i64 qkv_scratch_floats() {
    using Scratch = QkvScratch<Config>;
    return Scratch::tokens() +
           Config::kTokens * c_stride(max(Config::kHeadDim, Config::kVHeadDim)) +
           Scratch::converted();
}

// Bias, norm and rotation of one head of one token, in place.
template <i64 kDim, bool kHasBias, class Bias, class Norm, i64 kRotary, bool kInterleaved>
CLEAVE_INLINE void finish_head(float* c, const Bias* bias, const Norm& norm, const float* rope,
                               i64 rope_context, i64 position) {
    if constexpr (kHasBias)
        for (i64 i = 0; i < kDim; ++i) c[i] += load_one(bias + i);
    if constexpr (Norm::kPresent) rms_norm_row<kDim>(c, norm, c);
    if constexpr (kRotary > 0) {
        const float* cos = rope_row<kRotary>(rope, position);
        rope_head<kRotary, kInterleaved>(c, cos, cos + rope_context * (kRotary / 2));
    }
}

template <class Config>
struct QkvKernel {
    using C = Config;
    static constexpr i64 K = C::kIn, kStride = c_stride(max(C::kHeadDim, C::kVHeadDim));
    const QkvArgs<C>& a;
    KvCache<C, typename C::Kv> cache;
    float* c;
    float* converted;

    void query(const auto& block, i64 t0, i64 head) const {
        multiply_block<K, C::kReproducible>(
            skip_rows<K>(rows_of<C::kQHeads * C::kHeadDim>(a.q_weight), head * C::kHeadDim),
            C::kHeadDim, block, c, kStride, converted);
        auto norm = norm_head<C::kQNorm>(a.q_norm, C::kQNormEpsilon, C::kQNormOffset);
        for (i64 t = 0; t < block.count; ++t) {
            float* row = c + t * kStride;
            finish_head<C::kHeadDim, C::kQBias, typename C::QBias, decltype(norm), C::kQRotary,
                        C::kQInterleaved>(row, a.q_bias + head * C::kHeadDim, norm, a.q_rope,
                                          a.rope_context, a.positions[t0 + t]);
            float* out = a.q_out + (t0 + t) * (C::kQHeads * C::kHeadDim) + head * C::kHeadDim;
            for (i64 i = 0; i < C::kHeadDim; ++i) out[i] = row[i];
        }
    }

    void key(const auto& block, i64 t0, i64 head) const {
        multiply_block<K, C::kReproducible>(
            skip_rows<K>(rows_of<C::kKvHeads * C::kHeadDim>(a.k_weight), head * C::kHeadDim),
            C::kHeadDim, block, c, kStride, converted);
        auto norm = norm_head<C::kKNorm>(a.k_norm, C::kKNormEpsilon, C::kKNormOffset);
        for (i64 t = 0; t < block.count; ++t) {
            float* row = c + t * kStride;
            i64 position = a.positions[t0 + t];
            finish_head<C::kHeadDim, C::kKBias, typename C::KBias, decltype(norm), C::kKRotary,
                        C::kKInterleaved>(row, a.k_bias + head * C::kHeadDim, norm, a.k_rope,
                                          a.rope_context, position);
            cache.store_key(a.slots[t0 + t], C::kSlabOffset + head, position, row);
        }
    }

    void value(const auto& block, i64 t0, i64 head) const {
        multiply_block<K, C::kReproducible>(
            skip_rows<K>(rows_of<C::kKvHeads * C::kVHeadDim>(a.v_weight), head * C::kVHeadDim),
            C::kVHeadDim, block, c, kStride, converted);
        for (i64 t = 0; t < block.count; ++t) {
            float* row = c + t * kStride;
            if constexpr (C::kVBias)
                for (i64 i = 0; i < C::kVHeadDim; ++i)
                    row[i] += load_one(a.v_bias + head * C::kVHeadDim + i);
            cache.store_value(a.slots[t0 + t], C::kSlabOffset + head, a.positions[t0 + t], row);
        }
    }

    template <bool kPresent, class W>
    static CLEAVE_INLINE auto norm_head(const W* weight, double epsilon, float offset) {
        if constexpr (kPresent)
            return RmsNorm<W>{weight, epsilon, offset};
        else
            return NoNorm{};
    }
};

template <class Config>
CLEAVE_INLINE void qkv(const QkvArgs<Config>& a, i64 begin, i64 end, void* scratch) {
    static_assert(kPreparedBytes + qkv_scratch_floats<Config>() * 4 <= Config::kScratchBytes);
    constexpr i64 K = Config::kIn;
    constexpr i64 kItems = Config::kQHeads + 2 * Config::kKvHeads;
    float* x = static_cast<float*>(scratch) + kPreparedBytes / 4;
    float* c = x + QkvScratch<Config>::tokens();
    float* converted = c + Config::kTokens * QkvKernel<Config>::kStride;
    KvCache<Config, typename Config::Kv> cache{a.kv, a.num_blocks, a.blocks, a.blocks_per_slot};
    QkvKernel<Config> kernel{a, cache, c, converted};
    Rows input{a.x + Config::kXOffset, Config::kXStride, nullptr};
    auto norm = norm_of<Config>(a.norm);
    // All are products of integers, or none: they share x.
    constexpr bool kDynamic = kIsDynamic<typename Config::QWeight>;
    static_assert(kIsDynamic<typename Config::KWeight> == kDynamic &&
                  kIsDynamic<typename Config::VWeight> == kDynamic);
    const auto make = [&](i64 first, i64 count) __attribute__((always_inline)) {
        return prepare_block<K, QkvScratch<Config>, typename Config::QWeight>(
            input, first, count, a.num_tokens, norm, x);
    };
    const auto use = [&](const auto& block, i64 t0, i64 from,
                         i64 to) __attribute__((always_inline)) {
        for (i64 item = from; item < to; ++item) {
            if (item < Config::kQHeads)
                kernel.query(block, t0, item);
            else if (item < Config::kQHeads + Config::kKvHeads)
                kernel.key(block, t0, item - Config::kQHeads);
            else
                kernel.value(block, t0, item - Config::kQHeads - Config::kKvHeads);
        }
    };
    each_block<Config::kTokens, kItems>(a.num_tokens, begin, end, scratch, make, use);
}

}  // namespace cleave
