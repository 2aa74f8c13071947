// SPDX-License-Identifier: Apache-2.0
// The KV cache as kernels see it: a slab of blocks of kKeyBlock positions, K [kv_heads, num_blocks,
// kKeyBlock, head_dim], then V [kv_heads, num_blocks, kKeyBlock, v_head_dim]. The block table has
// the ids of a slot's blocks in the order of its positions. Values are rows of v_head_dim features.
// Keys are feature by feature within a block, [head_dim][kKeyBlock], so that the scores of a block
// are whole vectors for heads of any size and need no sum across lanes. Elements of 8 bits have
// scales behind them, float [kv_heads, num_blocks, kKeyBlock] of K and then of V: an element is
// stored * scale. Kernels reach elements through this accessor alone, so that another arrangement
// changes no kernel.
#pragma once

#include "eight_bit.h"

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

    // Scales of a block of a head: that of its key j is at [j].
    CLEAVE_INLINE auto* key_scales(i64 kv_head, i64 block) const {
        T* behind = base + C::kSlabHeads * num_blocks * kKeyBlock * (C::kHeadDim + C::kVHeadDim);
        return scales_at(behind) + (kv_head * num_blocks + block) * kKeyBlock;
    }
    CLEAVE_INLINE auto* value_scales(i64 kv_head, i64 block) const {
        return key_scales(C::kSlabHeads + kv_head, block);
    }

    CLEAVE_INLINE void store_key(i64 slot, i64 kv_head, i64 position, const float* from) const {
        const i64 block = blocks_of(slot)[position / kKeyBlock], row = position % kKeyBlock;
        T* to = keys(kv_head, block) + row;
        if constexpr (kIsScaled<T>)
            key_scales(kv_head, block)[row] = store_scaled<C::kHeadDim, kKeyBlock>(to, from);
        else
            for (i64 i = 0; i < C::kHeadDim; ++i) store_one(to + i * kKeyBlock, from[i]);
    }
    CLEAVE_INLINE void store_value(i64 slot, i64 kv_head, i64 position, const float* from) const {
        const i64 block = blocks_of(slot)[position / kKeyBlock], row = position % kKeyBlock;
        T* to = values(kv_head, block) + row * C::kVHeadDim;
        if constexpr (kIsScaled<T>)
            value_scales(kv_head, block)[row] = store_scaled<C::kVHeadDim, 1>(to, from);
        else
            for (i64 i = 0; i < C::kVHeadDim; ++i) store_one(to + i, from[i]);
    }

private:
    static CLEAVE_INLINE float* scales_at(int8* p) { return reinterpret_cast<float*>(p); }
    static CLEAVE_INLINE float* scales_at(f8e4m3* p) { return reinterpret_cast<float*>(p); }
    static CLEAVE_INLINE const float* scales_at(const int8* p) {
        return reinterpret_cast<const float*>(p);
    }
    static CLEAVE_INLINE const float* scales_at(const f8e4m3* p) {
        return reinterpret_cast<const float*>(p);
    }
};

}  // namespace cleave
