// SPDX-License-Identifier: Apache-2.0
// The blocks of a KV pool by id: free, held by sequences, or cached. A held block has a count of
// references, one a sequence. A cached block has none; its keys and values can be found again until
// evict() frees it, the least recently used one first.
// Invariants: block 0 is none of these; free + held + cached = num_blocks - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cleave::runtime {

class BlockPool {
public:
    explicit BlockPool(int64_t num_blocks);

    int64_t free() const { return free_; }
    int64_t held() const { return held_; }
    int64_t cached() const { return cached_; }
    int64_t available() const { return free_ + cached_; }

    // Takes `count` free blocks, each with one reference. `after`: the block before them in their
    // sequence, 0 for none. They are `after` + 1 and those behind it where these are free, else of
    // the longest run of free ids, with room on both sides. InternalError where fewer are free.
    std::vector<int32_t> allocate(int64_t count, int32_t after);

    // One more reference to a held or cached block.
    void share(int32_t block);

    // One reference less. A block without any is cached where `keep`, else free.
    void release(int32_t block, bool keep);

    // Frees the cached block that has been unused for longest and gives its id; 0: none is cached.
    int32_t evict();

    int64_t references(int32_t block) const { return references_[static_cast<size_t>(block)]; }

private:
    void add_run(int32_t begin, int32_t size);
    void remove_run(int32_t begin, int32_t size);
    void add_free(int32_t block);
    void unlink(int32_t block);

    int64_t free_ = 0, held_ = 0, cached_ = 0;
    std::vector<int32_t> references_;                // by block
    std::map<int32_t, int32_t> runs_;                // of free ids: begin, size
    std::set<std::pair<int32_t, int32_t>> longest_;  // the same: -size, begin
    // Cached blocks as a ring through block 0, from the least recently used on.
    std::vector<int32_t> older_, newer_;
};

}  // namespace cleave::runtime
