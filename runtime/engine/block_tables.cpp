// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/block_tables.h"

#include <algorithm>
#include <utility>

#include "runtime/base/errors.h"

namespace cleave::runtime {

using planner::kKvBlock;

BlockTables::BlockTables(int64_t slots, int64_t blocks_per_slot, int64_t num_blocks, int64_t window,
                         bool share_prefixes)
    : blocks_per_slot_(blocks_per_slot),
      window_(window),
      share_prefixes_(share_prefixes),
      pool_(num_blocks),
      index_(num_blocks),
      table_(static_cast<size_t>(slots * blocks_per_slot)) {}

int32_t& BlockTables::entry(const SequenceBlocks& sequence, int64_t index) {
    CLEAVE_CHECK(sequence.slot >= 0 && index < blocks_per_slot_)
        << "entry " << index << " of slot " << sequence.slot;
    return table_[static_cast<size_t>(sequence.slot * blocks_per_slot_ + index)];
}

// Cached blocks make room, the least recently used ones first.
void BlockTables::allocate(SequenceBlocks& sequence, int64_t count) {
    while (pool_.free() < count) index_.forget(pool_.evict());
    int32_t after = sequence.blocks.empty() ? 0 : sequence.blocks.back();
    for (int32_t block : pool_.allocate(count, after)) {
        entry(sequence, static_cast<int64_t>(sequence.blocks.size())) = block;
        sequence.blocks.push_back(block);
    }
}

int64_t BlockTables::take_prefix(SequenceBlocks& sequence, uint64_t salt,
                                 std::span<const int32_t> tokens, int64_t limit) {
    CLEAVE_CHECK(sequence.blocks.empty()) << "a prefix for a sequence that has blocks";
    if (!share_prefixes_) return 0;
    std::vector<int32_t> found;
    Prefix prefix;
    for (int64_t begin = 0; begin + kKvBlock <= limit; begin += kKvBlock) {
        BlockTokens part(tokens.subspan(static_cast<size_t>(begin)).first<kKvBlock>());
        auto longer = index_.find(salt, prefix, part);
        if (!longer) break;
        prefix = *longer;
        found.push_back(prefix.block);
    }
    auto count = static_cast<int64_t>(found.size());
    sequence.indexed = count;
    sequence.prefix = prefix;
    if (window_ > 0) {
        sequence.first = std::max<int64_t>(0, (count * kKvBlock - window_ + 1) / kKvBlock);
    }
    for (int64_t i = 0; i < count; ++i) {
        int32_t block = i < sequence.first ? 0 : found[static_cast<size_t>(i)];
        if (block != 0) pool_.share(block);
        entry(sequence, i) = block;
        sequence.blocks.push_back(block);
    }
    return count * kKvBlock;
}

int64_t BlockTables::extend(SequenceBlocks& sequence, int64_t end) {
    auto have = static_cast<int64_t>(sequence.blocks.size());
    int64_t wanted = planner::kv_blocks(end) - have;
    int64_t count = std::min(wanted, pool_.available());
    if (count > 0) allocate(sequence, count);
    return std::min(end, static_cast<int64_t>(sequence.blocks.size()) * kKvBlock);
}

void BlockTables::index(SequenceBlocks& sequence, uint64_t salt, std::span<const int32_t> tokens) {
    auto full = static_cast<int64_t>(tokens.size()) / kKvBlock;
    for (; share_prefixes_ && sequence.in_index && sequence.indexed < full; ++sequence.indexed) {
        auto i = static_cast<size_t>(sequence.indexed);
        BlockTokens part(tokens.subspan(i * kKvBlock).first<kKvBlock>());
        auto longer = index_.insert(salt, sequence.prefix, part, sequence.blocks[i]);
        sequence.in_index = longer.has_value();
        if (!longer) return;
        sequence.prefix = *longer;
    }
}

void BlockTables::give_back(SequenceBlocks& sequence, int64_t next) {
    if (window_ == 0) return;
    int64_t end = std::min(std::max<int64_t>(0, next - window_ + 1) / kKvBlock,
                           static_cast<int64_t>(sequence.blocks.size()));
    for (; sequence.first < end; ++sequence.first) {
        int32_t& block = sequence.blocks[static_cast<size_t>(sequence.first)];
        entry(sequence, sequence.first) = 0;
        release_block(std::exchange(block, 0));
    }
}

bool BlockTables::fork(const SequenceBlocks& sequence, SequenceBlocks& copy, int64_t positions) {
    auto full = static_cast<size_t>(positions / kKvBlock);
    bool partial = positions % kKvBlock != 0;
    if (partial && pool_.available() == 0) return false;
    copy.first = std::min(sequence.first, static_cast<int64_t>(full));
    copy.indexed = sequence.indexed;
    copy.in_index = sequence.in_index;
    copy.prefix = sequence.prefix;
    for (size_t i = 0; i < full; ++i) {
        int32_t block = sequence.blocks[i];
        if (block != 0) pool_.share(block);
        entry(copy, static_cast<int64_t>(i)) = block;
        copy.blocks.push_back(block);
    }
    if (partial) {
        allocate(copy, 1);
        copies_.push_back({sequence.blocks[full], copy.blocks.back()});
    }
    return true;
}

void BlockTables::hide(const SequenceBlocks& sequence) {
    auto row = table_.begin() + sequence.slot * blocks_per_slot_;
    std::fill_n(row, sequence.blocks.size(), 0);
}

// The last block first: a prefix is of use longer than what is behind it.
void BlockTables::release(SequenceBlocks& sequence) {
    hide(sequence);
    while (!sequence.blocks.empty()) {
        if (sequence.blocks.back() != 0) release_block(sequence.blocks.back());
        sequence.blocks.pop_back();
    }
    sequence = {.slot = sequence.slot};
}

// A copy into a block that nobody holds any more is not made.
void BlockTables::release_block(int32_t block) {
    pool_.release(block, index_.has(block));
    if (pool_.references(block) == 0) {
        std::erase_if(copies_, [&](const BlockCopy& copy) { return copy.to == block; });
    }
}

std::vector<BlockCopy> BlockTables::take_copies() { return std::exchange(copies_, {}); }

}  // namespace cleave::runtime
