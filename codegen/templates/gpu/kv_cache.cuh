// SPDX-License-Identifier: Apache-2.0
// The KV pool as kernels see it: keys [kSlabHeads, num_blocks, kKvBlock, kHeadDim], then values
// [kSlabHeads, num_blocks, kKvBlock, kVHeadDim]. The block table [slots, blocks_per_slot] names the
// blocks that hold a slot's positions. Kernels reach rows through these accessors alone, so that
// another arrangement changes no kernel, and so that the CPU can check each block's id and that a
// row is written before it is read.
#pragma once

#include "prelude.cuh"

namespace cleave {

constexpr int kKvBlock = 16;  // positions of a block

// The rows of one slot and head.
template <class C, class T>
struct KvRows {
    T *keys, *values;   // of block 0
    const i32* blocks;  // of the slot
    i64 num_blocks;

    // The block that holds a position.
    DEVICE i32 block(i32 position CLEAVE_HERE) const {
        return kv_block_id(blocks[u32(position) / kKvBlock], num_blocks CLEAVE_AT);
    }
    // Rows of a position and the block that holds it.
    DEVICE T* key(i32 block, i32 position) const {
        return keys + i64(block) * (kKvBlock * C::kHeadDim) + row_in_block(position) * C::kHeadDim;
    }
    DEVICE T* value(i32 block, i32 position) const {
        return values + i64(block) * (kKvBlock * C::kVHeadDim) +
               row_in_block(position) * C::kVHeadDim;
    }
    // Before a row is read, by one of the threads that do: somebody has written it.
    DEVICE void check_key(const T* row CLEAVE_HERE) const {
        kv_reads(row, int(C::kHeadDim) CLEAVE_AT);
    }
    DEVICE void check_value(const T* row CLEAVE_HERE) const {
        kv_reads(row, int(C::kVHeadDim) CLEAVE_AT);
    }
    static DEVICE int row_in_block(i32 position) { return int(u32(position) % kKvBlock); }
};

// Config: kSlabHeads, kHeadDim, kVHeadDim.
template <class C, class T>
struct KvCache {
    T* base;
    i64 num_blocks;
    const i32* blocks;
    i64 blocks_per_slot;

    DEVICE KvRows<C, T> rows(i64 slot, i64 head) const {
        const i64 positions = num_blocks * kKvBlock;
        return {base + head * positions * C::kHeadDim,
                base + positions * (C::kSlabHeads * C::kHeadDim + head * C::kVHeadDim),
                blocks + slot * blocks_per_slot, num_blocks};
    }
};

}  // namespace cleave
