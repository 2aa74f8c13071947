// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/decode_width.h"

#include <algorithm>

#include "importer/weights/quantized_shard.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

using planner::Plan;
using planner::Workload;

namespace {

constexpr int64_t kWidthStep = 8;  // from 8 rows on

// A slot without rows in the pass, the last one.
int64_t free_slot(const Batch& batch, const Workload& workload) {
    std::vector<bool> taken(static_cast<size_t>(workload.batch));
    for (int32_t slot : batch.slots) taken[static_cast<size_t>(slot)] = true;
    const auto last = std::find(taken.rbegin(), taken.rend(), false);
    CLEAVE_CHECK(last != taken.rend()) << "a pass of fewer rows than slots has every slot";
    return std::distance(last, taken.rend()) - 1;
}

}  // namespace

int64_t decode_width(int64_t rows, int64_t most) {
    int64_t width = 1;
    while (width < rows) width = width < kWidthStep ? 2 * width : width + kWidthStep;
    return std::min(width, most);
}

bool rows_are_independent(const Plan& plan) {
    return !plan.kv_slabs.empty() && !importer::has_dynamic_activations(plan.graph);
}

void fill_decode(Batch& batch, const Plan& plan) {
    const int64_t rows = batch.num_tokens(), width = decode_width(rows, plan.workload.batch);
    if (batch.is_prefill || batch.num_sequences() != rows || batch.num_outputs() != rows ||
        width == rows)
        return;
    const int64_t slot = free_slot(batch, plan.workload);
    if (batch.blocks.empty()) batch.blocks = identity_table(plan.workload, plan.kv_pool.num_blocks);
    const int64_t per_slot = plan.workload.blocks_per_slot();
    std::fill_n(batch.blocks.begin() + static_cast<std::ptrdiff_t>(slot * per_slot), per_slot, 0);
    for (int64_t row = rows; row < width; ++row) {
        batch.token_ids.push_back(0);
        batch.positions.push_back(0);
        batch.slots.push_back(static_cast<int32_t>(slot));
        batch.sequence_starts.push_back(static_cast<int32_t>(row + 1));
        batch.output_rows.push_back(static_cast<int32_t>(row));
    }
}

}  // namespace cleave::runtime
