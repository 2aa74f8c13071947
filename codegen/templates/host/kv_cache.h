// SPDX-License-Identifier: Apache-2.0
// The KV cache as kernels see it: a slab of blocks of kKeyBlock positions, K [kv_heads, num_blocks,
// kKeyBlock, head_dim], then V [kv_heads, num_blocks, kKeyBlock, v_head_dim]. The block table has
// the ids of a slot's blocks in the order of its positions. Values are rows of v_head_dim features.
// Keys are feature by feature within a block, [head_dim][kKeyBlock], so that the scores of a block
// are whole vectors for heads of any size and need no sum across lanes. Kernels reach elements
// through this accessor alone, so that another arrangement changes no kernel.
#pragma once

#include "prelude.h"

namespace cleave {

inline constexpr i64 kKeyBlock = 16;

// Config: kSlabHeads, kHeadDim, kVHeadDim.
template <class C, class T>
struct KvCache {
    T* base;
    i64 num_blocks;
    const i32* blocks;  // [slots, blocks_per_slot]
    i64 blocks_per_slot;

    // The row of the block table.
    CLEAVE_INLINE const i32* blocks_of(i64 slot) const { return blocks + slot * blocks_per_slot; }
    // A block of a head. Feature i of its key j is at [i * kKeyBlock + j].
    CLEAVE_INLINE T* keys(i64 kv_head, i64 block) const {
        return base + (kv_head * num_blocks + block) * kKeyBlock * C::kHeadDim;
    }
    // Feature i of its value j is at [j * v_head_dim + i].
    CLEAVE_INLINE T* values(i64 kv_head, i64 block) const {
        return base + C::kSlabHeads * num_blocks * kKeyBlock * C::kHeadDim +
               (kv_head * num_blocks + block) * kKeyBlock * C::kVHeadDim;
    }

    CLEAVE_INLINE void store_key(i64 slot, i64 kv_head, i64 position, const float* from) const {
        T* to = keys(kv_head, blocks_of(slot)[position / kKeyBlock]) + position % kKeyBlock;
        for (i64 i = 0; i < C::kHeadDim; ++i) store_one(to + i * kKeyBlock, from[i]);
    }
    CLEAVE_INLINE void store_value(i64 slot, i64 kv_head, i64 position, const float* from) const {
        T* to = values(kv_head, blocks_of(slot)[position / kKeyBlock]) +
                position % kKeyBlock * C::kVHeadDim;
        for (i64 i = 0; i < C::kVHeadDim; ++i) store_one(to + i, from[i]);
    }
};

}  // namespace cleave
