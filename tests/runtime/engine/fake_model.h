// SPDX-License-Identifier: Apache-2.0
// A model that shows what a scheduler does to its KV pool. Each position of the pool has a hash of
// its token and of the position before it, read through the block table as kernels read it. An
// output is a hash of every position that its row sees, so one wrong block makes other tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/engine/scheduler.h"

namespace cleave::test {

inline uint64_t mixed(uint64_t a, uint64_t b) {
    uint64_t z = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6))) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

inline uint64_t value_of(int32_t token, int64_t position, uint64_t before) {
    return mixed(mixed(before, static_cast<uint64_t>(position)), static_cast<uint32_t>(token));
}

// The token that copy `copy` takes from an output; small, so that prompts meet.
inline int32_t token_of(uint64_t output, int64_t copy) {
    return static_cast<int32_t>(mixed(output, static_cast<uint64_t>(copy)) % 50);
}

class FakeModel {
public:
    explicit FakeModel(const runtime::EngineLimits& limits)
        : limits_(limits), pool_(static_cast<size_t>(limits.num_blocks * planner::kKvBlock)) {}

    // [num_outputs]
    std::vector<uint64_t> run(const runtime::Batch& batch) {
        for (const runtime::BlockCopy& copy : batch.copies) {
            std::copy_n(pool_.begin() + copy.from * planner::kKvBlock, planner::kKvBlock,
                        pool_.begin() + copy.to * planner::kKvBlock);
        }
        for (size_t i = 0; i < batch.token_ids.size(); ++i) {
            int64_t position = batch.positions[i];
            uint64_t before =
                position > 0 && limits_.window != 1 ? at(batch, batch.slots[i], position - 1) : 0;
            at(batch, batch.slots[i], position) = value_of(batch.token_ids[i], position, before);
        }
        std::vector<uint64_t> outputs;
        for (int32_t row : batch.output_rows) {
            auto r = static_cast<size_t>(row);
            int64_t position = batch.positions[r];
            uint64_t output = 0;
            for (int64_t p = first_seen(limits_, position); p <= position; ++p) {
                output = mixed(output, at(batch, batch.slots[r], p));
            }
            outputs.push_back(output);
        }
        return outputs;
    }

    static int64_t first_seen(const runtime::EngineLimits& limits, int64_t position) {
        return limits.window > 0 ? std::max<int64_t>(0, position - limits.window + 1) : 0;
    }

private:
    uint64_t& at(const runtime::Batch& batch, int64_t slot, int64_t position) {
        int64_t entry = slot * limits_.blocks_per_slot() + position / planner::kKvBlock;
        int64_t block = batch.blocks.at(static_cast<size_t>(entry));
        return pool_.at(
            static_cast<size_t>(block * planner::kKvBlock + position % planner::kKvBlock));
    }

    runtime::EngineLimits limits_;
    std::vector<uint64_t> pool_;
};

// A sequence alone, without a pool: what the model computes for each of its tokens.
class AloneSequence {
public:
    explicit AloneSequence(const runtime::EngineLimits& limits) : limits_(limits) {}

    // The output of the row of `token`, behind those of former calls.
    uint64_t add(int32_t token) {
        auto position = static_cast<int64_t>(values_.size());
        uint64_t before = position > 0 && limits_.window != 1 ? values_.back() : 0;
        values_.push_back(value_of(token, position, before));
        uint64_t output = 0;
        for (int64_t p = FakeModel::first_seen(limits_, position); p <= position; ++p) {
            output = mixed(output, values_[static_cast<size_t>(p)]);
        }
        return output;
    }

private:
    runtime::EngineLimits limits_;
    std::vector<uint64_t> values_;
};

}  // namespace cleave::test
