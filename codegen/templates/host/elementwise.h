// SPDX-License-Identifier: Apache-2.0
// Operators with launches of their own, one row of activations an item: embedding, RmsNorm, Rope,
// KV append, gated activation, Add, Scale, SelectTokens. Inputs have a row stride and a first
// column, outputs are dense.
#pragma once

#include "epilogue.h"
#include "kv_cache.h"
#include "math.h"
#include "norm.h"
#include "quantized.h"
#include "rope.h"

namespace cleave {

// A row of a table for ids in [first, first + kRows), zero for every other id
// (vocabulary-parallel).
template <class Config>
CLEAVE_INLINE void embedding(const i32* ids, i64 first, const typename Config::Weight* table,
                             float* out, i64 begin, i64 end) {
    constexpr i64 n = Config::kOut;
    auto rows = rows_of<Config::kRows>(table);
    for (i64 t = begin; t < end; ++t) {
        i64 row = ids[t] - first;
        float* to = out + t * n;
        bool mine = row >= 0 && row < Config::kRows;
        if (!mine) {
            for (i64 i = 0; i < n; ++i) to[i] = 0.0f;
            continue;
        }
        // A quantised row comes in whole groups.
        constexpr i64 kWhole = n / kGroup * kGroup;
        widen<n>(rows, row, 0, kWhole, to);
        if constexpr (kWhole < n) {
            float rest[kGroup];
            widen<n>(rows, row, kWhole, n - kWhole, rest);
            for (i64 i = kWhole; i < n; ++i) to[i] = rest[i - kWhole];
        }
        for (i64 i = 0; i < n; ++i) to[i] *= Config::kScale;
    }
}

// Each run of kGroup features is normalised alone; its weight is [kGroup].
template <class Config>
CLEAVE_INLINE void rms_norm(const float* x, const typename Config::Weight* weight, float* out,
                            i64 begin, i64 end) {
    RmsNorm<typename Config::Weight> norm{weight, Config::kEpsilon, Config::kOffset};
    for (i64 t = begin; t < end; ++t)
        for (i64 i = 0; i < Config::kOut; i += Config::kGroup)
            rms_norm_row<Config::kGroup>(x + t * Config::kXStride + Config::kXOffset + i, norm,
                                         out + t * Config::kOut + i);
}

template <class Config>
CLEAVE_INLINE void rope(const float* x, const float* table, i64 context, const i32* positions,
                        float* out, i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t) {
        const float* from = x + t * Config::kXStride + Config::kXOffset;
        float* to = out + t * Config::kOut;
        const float* cos = rope_row<Config::kRotary>(table, positions[t]);
        for (i64 i = 0; i < Config::kOut; ++i) to[i] = from[i];
        for (i64 i = 0; i < Config::kOut; i += Config::kHeadDim)
            rope_head<Config::kRotary, Config::kInterleaved>(to + i, cos,
                                                             cos + context * (Config::kRotary / 2));
    }
}

template <class Config>
CLEAVE_INLINE void kv_append(const float* k, const float* v, typename Config::Kv* kv,
                             i64 num_blocks, const i32* blocks, i64 blocks_per_slot,
                             const i32* positions, const i32* slots, i64 begin, i64 end) {
    KvCache<Config, typename Config::Kv> cache{kv, num_blocks, blocks, blocks_per_slot};
    for (i64 t = begin; t < end; ++t) {
        for (i64 head = 0; head < Config::kKvHeads; ++head) {
            const float* from_k =
                k + t * Config::kKStride + Config::kKOffset + head * Config::kHeadDim;
            const float* from_v =
                v + t * Config::kVStride + Config::kVOffset + head * Config::kVHeadDim;
            cache.store_key(slots[t], Config::kSlabOffset + head, positions[t], from_k);
            cache.store_value(slots[t], Config::kSlabOffset + head, positions[t], from_v);
        }
    }
}

template <class Config>
CLEAVE_INLINE void gated_activation(const float* gate, const float* up, float* out, i64 begin,
                                    i64 end) {
    for (i64 t = begin; t < end; ++t)
        gated_activation_row<Config::kActivation>(gate + t * Config::kXStride + Config::kXOffset,
                                                  up + t * Config::kYStride + Config::kYOffset,
                                                  out + t * Config::kOut, Config::kOut);
}

template <class Config>
CLEAVE_INLINE void add(const float* x, const float* y, float* out, i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t)
        for (i64 i = 0; i < Config::kOut; ++i)
            out[t * Config::kOut + i] = x[t * Config::kXStride + Config::kXOffset + i] +
                                        y[t * Config::kYStride + Config::kYOffset + i];
}

template <class Config>
CLEAVE_INLINE void scale(const float* x, float* out, i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t)
        for (i64 i = 0; i < Config::kOut; ++i) {
            float y = x[t * Config::kXStride + Config::kXOffset + i] * Config::kScale;
            if constexpr (Config::kSoftcap > 0.0f) y = softcapped<Config>(y);
            out[t * Config::kOut + i] = y;
        }
}

template <class Config>
CLEAVE_INLINE void select_tokens(const float* x, const i32* rows, float* out, i64 begin, i64 end) {
    for (i64 t = begin; t < end; ++t)
        for (i64 i = 0; i < Config::kOut; ++i)
            out[t * Config::kOut + i] = x[rows[t] * Config::kXStride + Config::kXOffset + i];
}

}  // namespace cleave
