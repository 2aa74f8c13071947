// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/batch.h"

#include "runtime/base/errors.h"

namespace cleave::runtime {

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

}  // namespace cleave::runtime
