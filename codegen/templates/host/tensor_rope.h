// SPDX-License-Identifier: Apache-2.0
// RotaryEmbedding of whole tensors, a token an item; cos and sin come from tables by the token's
// position, or from the token's own row. A position that the tables do not have gives NaN. Su et
// al., "RoFormer", arXiv 2104.09864. Config: T (element type), kRotary (features of a head that
// turn), kInterleaved, kByPosition.
#pragma once

#include "prelude.h"

namespace cleave {

template <class Config>
struct TensorRopeArgs {
    const typename Config::T* X;          // rows of heads, by the strides
    const typename Config::T* cos_cache;  // [positions, kRotary / 2]
    const typename Config::T* sin_cache;
    const i64* position_ids;  // [batch, tokens]
    typename Config::T* Y;    // as X
    i64 tokens, heads, head_dim, positions;
    i64 batch_stride, head_stride, token_stride;
};

template <class Config>
CLEAVE_INLINE void tensor_rope(const TensorRopeArgs<Config>& a, i64 begin, i64 end, void*) {
    using C = Config;
    constexpr i64 kHalf = C::kRotary / 2;
    for (i64 token = begin; token < end; ++token) {
        i64 position = C::kByPosition ? a.position_ids[token] : token;
        bool known = position >= 0 && position < a.positions;
        const auto* cos = a.cos_cache + (known ? position : 0) * kHalf;
        const auto* sin = a.sin_cache + (known ? position : 0) * kHalf;
        i64 offset = token / a.tokens * a.batch_stride + token % a.tokens * a.token_stride;
        for (i64 head = 0; head < a.heads; ++head) {
            const auto* x = a.X + offset + head * a.head_stride;
            auto* y = a.Y + offset + head * a.head_stride;
            for (i64 i = 0; i < kHalf; ++i) {
                i64 first = C::kInterleaved ? 2 * i : i;
                i64 second = C::kInterleaved ? 2 * i + 1 : i + kHalf;
                float u = load_one(x + first), v = load_one(x + second);
                float c = known ? load_one(cos + i) : __builtin_nanf("");
                float s = load_one(sin + i);
                store_one(y + first, u * c - v * s);
                store_one(y + second, v * c + u * s);
            }
            for (i64 i = C::kRotary; i < a.head_dim; ++i) y[i] = x[i];
        }
    }
}

}  // namespace cleave
