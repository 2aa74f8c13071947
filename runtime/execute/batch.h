// SPDX-License-Identifier: Apache-2.0
// One pass over the model: tokens of several sequences, one after the other, no padding.
// Invariants: rows of one sequence are contiguous with increasing positions; every slot <
// workload.batch and every position < workload.context; output_rows are increasing and <
// token_ids.size(). A slot is a row of the block table, which says where the KV pool has its
// positions.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/plan/workload.h"

namespace cleave::runtime {

// The KV of a whole block, in all slabs of all devices.
struct BlockCopy {
    int32_t from = 0, to = 0;

    bool operator==(const BlockCopy&) const = default;
};

struct Batch {
    std::vector<int32_t> token_ids;        // [num_tokens]
    std::vector<int32_t> positions;        // [num_tokens]
    std::vector<int32_t> slots;            // [num_tokens]
    std::vector<int32_t> sequence_starts;  // [num_sequences + 1]
    std::vector<int32_t> output_rows;      // [num_outputs]
    bool is_prefill = true;                // which of the plan's step lists runs
    // The block table, [workload.batch, workload.blocks_per_slot()], 0 behind a slot's last block;
    // empty: identity_table.
    std::vector<int32_t> blocks;
    std::vector<BlockCopy> copies;  // before the pass's first step: copy on write

    int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
    int64_t num_outputs() const { return static_cast<int64_t>(output_rows.size()); }
    int64_t num_sequences() const { return static_cast<int64_t>(sequence_starts.size()) - 1; }
};

// Block `index` of `slot` in the table where every slot has a whole context's blocks, in order.
inline int64_t identity_block(const planner::Workload& workload, int64_t slot, int64_t index) {
    return 1 + slot * workload.blocks_per_slot() + index;
}

// That table whole, as Batch::blocks; 0 for blocks that a pool of `num_blocks` has not.
std::vector<int32_t> identity_table(const planner::Workload& workload, int64_t num_blocks);

// InternalError unless `batch` holds the invariants above and fits the workload.
void check_batch(const Batch& batch, const planner::Workload& workload);

// InternalError unless a pool of `num_blocks` carries out `batch`, which check_batch has passed:
// blocks of positions that are written or read are in [1, num_blocks), and a block that is written
// is in the table once. A token reads `window` positions up to its own; 0: all. Copies go to blocks
// of their own, from which none is made. Takes time of the order of the tokens and the table.
void check_blocks(const Batch& batch, const planner::Workload& workload, int64_t num_blocks,
                  int64_t window);

}  // namespace cleave::runtime
