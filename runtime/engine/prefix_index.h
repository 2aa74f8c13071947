// SPDX-License-Identifier: Apache-2.0
// Finds the KV block of the same tokens behind the same prefix. In: full blocks with their tokens
// and the prefix before them. Out: a block whose keys and values are those of the prefix asked for.
// A chain of hashes says where to look. A hit compares salt, prefix and tokens, so two prefixes
// with one hash are never taken for each other.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/plan/workload.h"

namespace cleave::runtime {

using BlockTokens = std::span<const int32_t, static_cast<size_t>(planner::kKvBlock)>;

// A prefix of full blocks, by its last block. The default is the empty prefix.
struct Prefix {
    int64_t id = 0;     // never given twice; equal for equal prefixes while they are in the index
    int32_t block = 0;  // of its last tokens
};

class PrefixIndex {
public:
    // `hash_mask`: of the hashes; tests make them collide.
    explicit PrefixIndex(int64_t num_blocks, uint64_t hash_mask = ~uint64_t{0});

    // `prefix` with `tokens` behind it, if the index has it.
    std::optional<Prefix> find(uint64_t salt, const Prefix& prefix, BlockTokens tokens) const;

    // Enters `block`, which has `tokens` behind `prefix`. Where another block has them already, the
    // index keeps that one and returns it. Nothing is entered behind a prefix that was forgotten;
    // empty then.
    std::optional<Prefix> insert(uint64_t salt, const Prefix& prefix, BlockTokens tokens,
                                 int32_t block);

    bool has(int32_t block) const { return entries_[static_cast<size_t>(block)].id != 0; }
    void forget(int32_t block);  // has(block)

private:
    struct Entry {
        int64_t id = 0;  // 0: the block is not in the index
        int64_t before = 0;
        uint64_t salt = 0, hash = 0;
        std::array<int32_t, static_cast<size_t>(planner::kKvBlock)> tokens{};
    };
    uint64_t hash_of(uint64_t salt, int64_t before, BlockTokens tokens) const;

    std::vector<Entry> entries_;                         // by block
    std::unordered_multimap<uint64_t, int32_t> blocks_;  // by hash
    uint64_t hash_mask_;
    int64_t last_id_ = 0;
};

}  // namespace cleave::runtime
