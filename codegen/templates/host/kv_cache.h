// SPDX-License-Identifier: Apache-2.0
// The KV cache as kernels see it: a slab [slots, kv_heads, context] of keys, then one of values.
// Values are rows of v_head_dim features. Keys are in blocks of kKeyBlock positions, feature by
// feature: [head_dim][kKeyBlock], so that the scores of a block are whole vectors for
// heads of any size and need no sum across lanes. The context's last block is only as wide as what
// is left, so that there is no padding. Kernels reach elements through this accessor alone, so that
// another arrangement changes no kernel.
#pragma once

#include "prelude.h"

namespace cleave {

inline constexpr i64 kKeyBlock = 16;

template <class T>
struct KvCache {
    T* base;
    i64 num_slots, context;
    i64 kv_heads, head_dim, v_head_dim;

    // The block of keys with `position`, and how many positions it has room for.
    CLEAVE_INLINE T* key_block(i64 slot, i64 kv_head, i64 position) const {
        return base + ((slot * kv_heads + kv_head) * context + position / kKeyBlock * kKeyBlock) *
                          head_dim;
    }
    CLEAVE_INLINE i64 key_block_width(i64 position) const {
        return min(kKeyBlock, context - position / kKeyBlock * kKeyBlock);
    }
    // Feature i of a key is key(...)[i * key_block_width(position)].
    CLEAVE_INLINE T* key(i64 slot, i64 kv_head, i64 position) const {
        return key_block(slot, kv_head, position) + position % kKeyBlock;
    }
    CLEAVE_INLINE T* value(i64 slot, i64 kv_head, i64 position) const {
        return base + num_slots * kv_heads * context * head_dim +
               ((slot * kv_heads + kv_head) * context + position) * v_head_dim;
    }

    CLEAVE_INLINE void store_key(i64 slot, i64 kv_head, i64 position, const float* from) const {
        T* to = key(slot, kv_head, position);
        const i64 width = key_block_width(position);
        for (i64 i = 0; i < head_dim; ++i) store_one(to + i * width, from[i]);
    }
    CLEAVE_INLINE void store_value(i64 slot, i64 kv_head, i64 position, const float* from) const {
        T* to = value(slot, kv_head, position);
        for (i64 i = 0; i < v_head_dim; ++i) store_one(to + i, from[i]);
    }
};

}  // namespace cleave
