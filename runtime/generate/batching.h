// SPDX-License-Identifier: Apache-2.0
// Sequences cut into passes: prompts into prefill chunks, live sequences into decode steps.
// Sequence i of a call keeps cache slot i.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/execute/batch.h"

namespace cleave::runtime {

// UserError naming the first id that the vocabulary does not have. `what`: "the prompt".
void check_token_ids(std::span<const int32_t> ids, int64_t vocab, const std::string& what);

// A prefill pass and whose logits it gives.
struct PrefillPass {
    Batch batch;
    std::vector<size_t> output_sequences;  // of each output row
};

// All prompts, one after the other, in passes of at most `chunk` tokens; a pass may end one prompt
// and begin the next. Logits of each prompt's last token, or of every token.
std::vector<PrefillPass> make_prefill_passes(std::span<const std::vector<int32_t>> prompts,
                                             int64_t chunk, bool all_logits);

// One token of each live sequence.
struct LiveSequence {
    size_t sequence = 0;   // its slot
    int32_t token = 0;     // the last one, not yet seen by the model
    int64_t position = 0;  // of that token
};
Batch make_decode_pass(std::span<const LiveSequence> live);

// The block table in which sequence i has blocks for lengths[i] tokens, in order; empty where the
// identity table has room in the pool for all. UserError where no table has.
std::vector<int32_t> table_for(const planner::Plan& plan, std::span<const int64_t> lengths);

}  // namespace cleave::runtime
