// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/prefix_index.h"

#include <algorithm>

#include "runtime/base/errors.h"

namespace cleave::runtime {

PrefixIndex::PrefixIndex(int64_t num_blocks, uint64_t hash_mask)
    : entries_(static_cast<size_t>(num_blocks)), hash_mask_(hash_mask) {}

// FNV-1a with a last mix, over 64-bit words.
uint64_t PrefixIndex::hash_of(uint64_t salt, int64_t before, BlockTokens tokens) const {
    uint64_t hash = 0xcbf29ce484222325u;
    auto add = [&](uint64_t word) {
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 32;
    };
    add(salt);
    add(static_cast<uint64_t>(before));
    for (int32_t token : tokens) add(static_cast<uint32_t>(token));
    return hash & hash_mask_;
}

std::optional<Prefix> PrefixIndex::find(uint64_t salt, const Prefix& prefix,
                                        BlockTokens tokens) const {
    auto [begin, end] = blocks_.equal_range(hash_of(salt, prefix.id, tokens));
    for (auto it = begin; it != end; ++it) {
        const Entry& entry = entries_[static_cast<size_t>(it->second)];
        if (entry.salt == salt && entry.before == prefix.id &&
            std::ranges::equal(entry.tokens, tokens)) {
            return Prefix{entry.id, it->second};
        }
    }
    return std::nullopt;
}

std::optional<Prefix> PrefixIndex::insert(uint64_t salt, const Prefix& prefix, BlockTokens tokens,
                                          int32_t block) {
    if (prefix.id != 0 && entries_[static_cast<size_t>(prefix.block)].id != prefix.id) {
        return std::nullopt;
    }
    if (auto found = find(salt, prefix, tokens)) return found;
    Entry& entry = entries_[static_cast<size_t>(block)];
    CLEAVE_CHECK(block > 0 && entry.id == 0) << "block " << block << " has a prefix already";
    entry.id = ++last_id_;
    entry.before = prefix.id;
    entry.salt = salt;
    entry.hash = hash_of(salt, prefix.id, tokens);
    std::ranges::copy(tokens, entry.tokens.begin());
    blocks_.emplace(entry.hash, block);
    return Prefix{entry.id, block};
}

void PrefixIndex::forget(int32_t block) {
    Entry& entry = entries_[static_cast<size_t>(block)];
    auto [begin, end] = blocks_.equal_range(entry.hash);
    auto it = std::find_if(begin, end, [&](const auto& pair) { return pair.second == block; });
    CLEAVE_CHECK(entry.id != 0 && it != end) << "block " << block << " has no prefix";
    blocks_.erase(it);
    entry.id = 0;
}

}  // namespace cleave::runtime
