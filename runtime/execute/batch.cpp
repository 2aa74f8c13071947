// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/batch.h"

#include <algorithm>

#include "runtime/base/errors.h"

namespace cleave::runtime {

std::vector<int32_t> identity_table(const planner::Workload& workload, int64_t num_blocks) {
    std::vector<int32_t> table;
    for (int64_t slot = 0; slot < workload.batch; ++slot)
        for (int64_t i = 0; i < workload.blocks_per_slot(); ++i) {
            const int64_t block = identity_block(workload, slot, i);
            table.push_back(block < num_blocks ? static_cast<int32_t>(block) : 0);
        }
    return table;
}

void check_batch(const Batch& batch, const planner::Workload& workload) {
    size_t tokens = batch.token_ids.size();
    CLEAVE_CHECK(batch.positions.size() == tokens && batch.slots.size() == tokens)
        << "arrays of a batch differ in length";
    int64_t most = batch.is_prefill ? workload.max_tokens() : workload.batch;
    CLEAVE_CHECK(tokens > 0 && batch.num_tokens() <= most)
        << "a pass of " << tokens << " tokens; at most " << most;
    int64_t most_outputs = batch.is_prefill ? workload.max_outputs() : workload.batch;
    CLEAVE_CHECK(batch.num_outputs() <= most_outputs)
        << batch.num_outputs() << " rows of logits wanted; the plan has room for " << most_outputs;
    CLEAVE_CHECK(batch.num_sequences() >= 1 && batch.num_sequences() <= workload.batch)
        << batch.num_sequences() << " sequences; the plan has " << workload.batch;
    CLEAVE_CHECK(batch.sequence_starts.front() == 0 &&
                 batch.sequence_starts.back() == static_cast<int32_t>(tokens))
        << "sequences do not cover the tokens";
    for (size_t i = 0; i < tokens; ++i) {
        CLEAVE_CHECK(batch.slots[i] >= 0 && batch.slots[i] < workload.batch)
            << "slot " << batch.slots[i];
        CLEAVE_CHECK(batch.positions[i] >= 0 && batch.positions[i] < workload.context)
            << "position " << batch.positions[i] << " of a context of " << workload.context;
    }
    for (size_t i = 0; i < batch.output_rows.size(); ++i) {
        int32_t row = batch.output_rows[i];
        CLEAVE_CHECK(row >= 0 && row < static_cast<int32_t>(tokens) &&
                     (i == 0 || batch.output_rows[i - 1] < row))
            << "output row " << row;
    }
}

namespace {

// What a pass does to the blocks of a pool.
class BlockCheck {
public:
    BlockCheck(const Batch& batch, const planner::Workload& workload, int64_t num_blocks)
        : batch_(batch), workload_(workload), num_blocks_(num_blocks), written_(size()) {}

    void tokens(int64_t window) {
        for (size_t s = 0; s + 1 < batch_.sequence_starts.size(); ++s) {
            const auto begin = static_cast<size_t>(batch_.sequence_starts[s]),
                       end = static_cast<size_t>(batch_.sequence_starts[s + 1]);
            const int64_t slot = batch_.slots[begin];
            const int64_t oldest =
                window > 0 ? std::max<int64_t>(0, batch_.positions[begin] - window + 1) : 0;
            int64_t last = -1;  // block that was written
            for (int64_t i = oldest / planner::kKvBlock;
                 i <= batch_.positions[end - 1] / planner::kKvBlock; ++i)
                block(slot, i);
            for (size_t t = begin; t < end; ++t) {
                CLEAVE_CHECK(batch_.slots[t] == slot) << "a sequence in two slots";
                const int64_t index = batch_.positions[t] / planner::kKvBlock;
                if (index != last) write(slot, last = index);
            }
        }
        int64_t named = 0;
        for (int32_t id : batch_.blocks)
            if (id > 0 && id < num_blocks_ && written_[static_cast<size_t>(id)]) ++named;
        CLEAVE_CHECK(batch_.blocks.empty() || named == num_written_)
            << "a pass writes " << num_written_ << " blocks, and the block table has them " << named
            << " times: a shared block is copied before it is written";
    }

    void copies() const {
        std::vector<bool> from(size()), to(size());
        for (const BlockCopy& copy : batch_.copies) {
            for (int32_t id : {copy.from, copy.to}) owned(id);
            from[static_cast<size_t>(copy.from)] = true;
            CLEAVE_CHECK(!to[static_cast<size_t>(copy.to)])
                << "two copies to block " << copy.to << " of the KV pool";
            to[static_cast<size_t>(copy.to)] = true;
        }
        for (const BlockCopy& copy : batch_.copies)
            CLEAVE_CHECK(!from[static_cast<size_t>(copy.to)])
                << "block " << copy.to << " of the KV pool is copied in the pass that makes it";
    }

private:
    size_t size() const { return static_cast<size_t>(std::max<int64_t>(num_blocks_, 0)); }
    void owned(int64_t id) const {
        CLEAVE_CHECK(id >= 1 && id < num_blocks_)
            << "block " << id << " of a KV pool of " << num_blocks_ << ", of which 0 is nobody's";
    }
    int64_t block(int64_t slot, int64_t index) const {
        const int64_t id =
            batch_.blocks.empty()
                ? identity_block(workload_, slot, index)
                : batch_.blocks[static_cast<size_t>(slot * workload_.blocks_per_slot() + index)];
        CLEAVE_CHECK(id >= 1 && id < num_blocks_)
            << "position " << index * planner::kKvBlock << " of slot " << slot << " is in block "
            << id << " of a KV pool of " << num_blocks_;
        return id;
    }
    void write(int64_t slot, int64_t index) {
        const auto id = static_cast<size_t>(block(slot, index));
        CLEAVE_CHECK(!written_[id]) << "two sequences of a pass write block " << id;
        written_[id] = true;
        ++num_written_;
    }

    const Batch& batch_;
    const planner::Workload& workload_;
    int64_t num_blocks_;
    std::vector<bool> written_;
    int64_t num_written_ = 0;
};

}  // namespace

void check_blocks(const Batch& batch, const planner::Workload& workload, int64_t num_blocks,
                  int64_t window) {
    const int64_t entries = workload.batch * workload.blocks_per_slot();
    CLEAVE_CHECK(batch.blocks.empty() || static_cast<int64_t>(batch.blocks.size()) == entries)
        << "a block table of " << batch.blocks.size() << " entries; the plan's has " << entries;
    BlockCheck check(batch, workload, num_blocks);
    check.tokens(window);
    check.copies();
}

}  // namespace cleave::runtime
