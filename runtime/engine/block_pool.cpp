// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/block_pool.h"

#include <algorithm>
#include <iterator>

#include "runtime/base/errors.h"

namespace cleave::runtime {

BlockPool::BlockPool(int64_t num_blocks) {
    CLEAVE_CHECK(num_blocks >= 1 && num_blocks <= INT32_MAX) << num_blocks << " blocks";
    auto size = static_cast<size_t>(num_blocks);
    references_.resize(size);
    older_.resize(size);
    newer_.resize(size);
    free_ = num_blocks - 1;
    if (free_ > 0) add_run(1, static_cast<int32_t>(free_));
}

void BlockPool::add_run(int32_t begin, int32_t size) {
    runs_.emplace(begin, size);
    longest_.emplace(-size, begin);
}

void BlockPool::remove_run(int32_t begin, int32_t size) {
    runs_.erase(begin);
    longest_.erase({-size, begin});
}

std::vector<int32_t> BlockPool::allocate(int64_t count, int32_t after) {
    CLEAVE_CHECK(count <= free_) << count << " blocks wanted; " << free_ << " are free";
    std::vector<int32_t> blocks;
    while (count > 0) {
        auto run = after > 0 ? runs_.find(after + 1) : runs_.end();
        int32_t lead = 0;  // ids of the run before those taken
        if (run == runs_.end()) {
            run = runs_.find(longest_.begin()->second);
            lead = static_cast<int32_t>((run->second - std::min<int64_t>(run->second, count)) / 2);
        }
        auto [begin, size] = *run;
        auto taken = static_cast<int32_t>(std::min<int64_t>(size - lead, count));
        remove_run(begin, size);
        if (lead > 0) add_run(begin, lead);
        if (lead + taken < size) add_run(begin + lead + taken, size - lead - taken);
        for (int32_t i = 0; i < taken; ++i) {
            after = begin + lead + i;
            blocks.push_back(after);
            references_[static_cast<size_t>(after)] = 1;
        }
        count -= taken;
        free_ -= taken;
        held_ += taken;
    }
    return blocks;
}

void BlockPool::unlink(int32_t block) {
    auto b = static_cast<size_t>(block);
    newer_[static_cast<size_t>(older_[b])] = newer_[b];
    older_[static_cast<size_t>(newer_[b])] = older_[b];
    --cached_;
}

void BlockPool::share(int32_t block) {
    if (references_[static_cast<size_t>(block)]++ > 0) return;
    unlink(block);
    ++held_;
}

void BlockPool::release(int32_t block, bool keep) {
    auto b = static_cast<size_t>(block);
    CLEAVE_CHECK(block > 0 && references_[b] > 0) << "block " << block << " is not held";
    if (--references_[b] > 0) return;
    --held_;
    if (!keep) return add_free(block);
    ++cached_;
    older_[b] = older_[0];
    newer_[b] = 0;
    newer_[static_cast<size_t>(older_[0])] = block;
    older_[0] = block;
}

int32_t BlockPool::evict() {
    int32_t block = newer_[0];
    if (block == 0) return 0;
    unlink(block);
    add_free(block);
    return block;
}

// Joins the runs on both sides.
void BlockPool::add_free(int32_t block) {
    ++free_;
    int32_t begin = block, size = 1;
    auto behind = runs_.upper_bound(block);
    if (behind != runs_.begin()) {
        auto [before, length] = *std::prev(behind);
        if (before + length == block) {
            begin = before;
            size += length;
        }
    }
    if (behind != runs_.end() && behind->first == block + 1) {
        size += behind->second;
        remove_run(block + 1, behind->second);
    }
    if (begin != block) remove_run(begin, block - begin);
    add_run(begin, size);
}

}  // namespace cleave::runtime
