// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate/batching.h"

#include <algorithm>

#include "planner/plan/kv_room.h"
#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::runtime {

namespace {

// Appends tokens [begin, end) of prompt `s` to the pass as one run of rows.
void append(PrefillPass& pass, size_t s, const std::vector<int32_t>& prompt, size_t begin,
            size_t end, bool all_logits) {
    Batch& batch = pass.batch;
    for (size_t p = begin; p < end; ++p) {
        if (all_logits || p + 1 == prompt.size()) {
            batch.output_rows.push_back(static_cast<int32_t>(batch.token_ids.size()));
            pass.output_sequences.push_back(s);
        }
        batch.token_ids.push_back(prompt[p]);
        batch.positions.push_back(static_cast<int32_t>(p));
        batch.slots.push_back(static_cast<int32_t>(s));
    }
    batch.sequence_starts.push_back(static_cast<int32_t>(batch.token_ids.size()));
}

}  // namespace

void check_token_ids(std::span<const int32_t> ids, int64_t vocab, const std::string& what) {
    for (const int32_t id : ids)
        if (id < 0 || id >= vocab)
            throw UserError("{} has token id {}; this model's ids are 0 to {}", what, id,
                            vocab - 1);
}

std::vector<PrefillPass> make_prefill_passes(std::span<const std::vector<int32_t>> prompts,
                                             int64_t chunk, bool all_logits) {
    CLEAVE_CHECK(chunk > 0) << "a prefill chunk of " << chunk << " tokens";
    std::vector<PrefillPass> passes;
    size_t room = 0;
    for (size_t s = 0; s < prompts.size(); ++s) {
        for (size_t p = 0; p < prompts[s].size();) {
            if (room == 0) {
                passes.emplace_back().batch.sequence_starts.push_back(0);
                room = static_cast<size_t>(chunk);
            }
            size_t count = std::min(room, prompts[s].size() - p);
            append(passes.back(), s, prompts[s], p, p + count, all_logits);
            p += count;
            room -= count;
        }
    }
    return passes;
}

Batch make_decode_pass(std::span<const LiveSequence> live) {
    Batch batch;
    batch.is_prefill = false;
    batch.sequence_starts.push_back(0);
    for (const LiveSequence& sequence : live) {
        batch.output_rows.push_back(static_cast<int32_t>(batch.token_ids.size()));
        batch.token_ids.push_back(sequence.token);
        batch.positions.push_back(static_cast<int32_t>(sequence.position));
        batch.slots.push_back(static_cast<int32_t>(sequence.sequence));
        batch.sequence_starts.push_back(static_cast<int32_t>(batch.token_ids.size()));
    }
    return batch;
}

std::vector<int32_t> table_for(const planner::Plan& plan, std::span<const int64_t> lengths) {
    const planner::Workload& w = plan.workload;
    const int64_t num_blocks = plan.kv_pool.num_blocks, per_slot = w.blocks_per_slot();
    if (plan.kv_slabs.empty() || 1 + std::ssize(lengths) * per_slot <= num_blocks) return {};
    std::vector<int32_t> table(static_cast<size_t>(w.batch * per_slot), 0);
    int64_t next = 1;  // block 0 is nobody's
    for (size_t s = 0; s < lengths.size(); ++s)
        for (int64_t i = 0; i < ceil_div(lengths[s], planner::kKvBlock); ++i, ++next)
            if (next < num_blocks)
                table[s * static_cast<size_t>(per_slot) + static_cast<size_t>(i)] =
                    static_cast<int32_t>(next);
    if (next > num_blocks)
        throw UserError(
            "the KV pool has {} tokens, and these {} sequences take {} with their new tokens, in "
            "blocks of {}; plan with $kv_tokens {} or more, or give fewer prompts or a smaller "
            "$max_new_tokens",
            planner::kv_tokens(num_blocks), lengths.size(), planner::kv_tokens(next),
            planner::kKvBlock, planner::kv_tokens(next));
    return table;
}

}  // namespace cleave::runtime
