// SPDX-License-Identifier: Apache-2.0
// One pass over the model: tokens of several sequences, one after the other, no padding.
// Invariants: rows of one sequence are contiguous with increasing positions; every slot <
// workload.batch and every position < workload.context; output_rows are increasing and <
// token_ids.size().
#pragma once

#include <cstdint>
#include <vector>

#include "planner/plan/workload.h"

namespace cleave::runtime {

struct Batch {
    std::vector<int32_t> token_ids;        // [num_tokens]
    std::vector<int32_t> positions;        // [num_tokens]
    std::vector<int32_t> slots;            // [num_tokens]
    std::vector<int32_t> sequence_starts;  // [num_sequences + 1]
    std::vector<int32_t> output_rows;      // [num_outputs]
    bool is_prefill = true;                // which of the plan's step lists runs

    int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
    int64_t num_outputs() const { return static_cast<int64_t>(output_rows.size()); }
    int64_t num_sequences() const { return static_cast<int64_t>(sequence_starts.size()) - 1; }
};

// InternalError unless `batch` holds the invariants above and fits the workload.
void check_batch(const Batch& batch, const planner::Workload& workload);

}  // namespace cleave::runtime
