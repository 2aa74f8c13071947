// SPDX-License-Identifier: Apache-2.0
// Which blocks of the KV pool hold the positions of which sequence. In: sequences that grow, share
// prefixes, fork and end. Out: the block table of the next pass and the copies that it needs first.
// Invariants: entry i of a sequence has its positions [16 i, 16 i + 16); entries before `first` and
// behind the last are 0. A block in two sequences is full and is in both at the same entry.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/plan/workload.h"
#include "runtime/engine/block_pool.h"
#include "runtime/engine/prefix_index.h"
#include "runtime/execute/batch.h"

namespace cleave::runtime {

// The blocks of a sequence. Only BlockTables changes it.
struct SequenceBlocks {
    int64_t slot = -1;            // its row of the table; -1: none
    std::vector<int32_t> blocks;  // 0: given back, or never needed
    int64_t first = 0;            // entries before it are 0
    int64_t indexed = 0;          // full blocks that are in the prefix index
    bool in_index = true;         // false: its next block cannot be found, so none is entered
    Prefix prefix;                // of the first `indexed` blocks

    int64_t held() const { return static_cast<int64_t>(blocks.size()) - first; }
};

class BlockTables {
public:
    // `window`: keys further back than this are never read again; 0: all are.
    BlockTables(int64_t slots, int64_t blocks_per_slot, int64_t num_blocks, int64_t window,
                bool share_prefixes);

    // Gives an empty sequence the blocks of the longest prefix of tokens[0, limit) in the index.
    // Returns its positions, a multiple of 16.
    int64_t take_prefix(SequenceBlocks& sequence, uint64_t salt, std::span<const int32_t> tokens,
                        int64_t limit);

    // Blocks for positions [0, end), as far as the pool has some. Returns the positions, at most
    // `end`, that have blocks.
    int64_t extend(SequenceBlocks& sequence, int64_t end);

    // The keys and values of `tokens` are in the pool: full blocks among them can be shared.
    void index(SequenceBlocks& sequence, uint64_t salt, std::span<const int32_t> tokens);

    // Gives back blocks that no position from `next` on sees through the window.
    void give_back(SequenceBlocks& sequence, int64_t next);

    // `copy`, which is empty, gets the first `positions` positions of `sequence`: its full blocks,
    // and a copy of the last where it is partial. False, and nothing, where the pool has no block.
    bool fork(const SequenceBlocks& sequence, SequenceBlocks& copy, int64_t positions);

    // No pass given later reads the row of the table; the blocks stay held.
    void hide(const SequenceBlocks& sequence);

    // Gives back all blocks; full ones in the index stay cached. The slot is the caller's.
    void release(SequenceBlocks& sequence);

    const std::vector<int32_t>& table() const { return table_; }  // [slots, blocks_per_slot]
    std::vector<BlockCopy> take_copies();                         // since the last call
    const BlockPool& pool() const { return pool_; }

private:
    int32_t& entry(const SequenceBlocks& sequence, int64_t index);
    void allocate(SequenceBlocks& sequence, int64_t count);
    void release_block(int32_t block);

    int64_t blocks_per_slot_, window_;
    bool share_prefixes_;
    BlockPool pool_;
    PrefixIndex index_;
    std::vector<int32_t> table_;
    std::vector<BlockCopy> copies_;
};

}  // namespace cleave::runtime
