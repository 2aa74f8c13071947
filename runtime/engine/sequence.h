// SPDX-License-Identifier: Apache-2.0
// What the scheduler knows of a request and of a sequence: tokens, how many of them passes have
// computed, blocks. Keys are in order of arrival.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "runtime/engine/block_tables.h"
#include "runtime/engine/scheduler.h"

namespace cleave::runtime {

struct SequenceKey {
    RequestId request = 0;
    int64_t copy = 0;

    friend auto operator<=>(const SequenceKey&, const SequenceKey&) = default;
};

// What all copies of a request have in common.
struct RequestFacts {
    int64_t prompt_tokens = 0;
    int64_t max_new_tokens = 0;
    uint64_t salt = 0;
    bool prompt_logits = false;
    int64_t sequences = 1;  // that have not ended

    // Of a sequence at its end: the last new token is never computed.
    int64_t positions() const {
        return prompt_tokens + (max_new_tokens > 0 ? max_new_tokens - 1 : 0);
    }
};

struct Sequence {
    std::vector<int32_t> tokens;  // of the prompt, then new ones
    int64_t forks = 0;            // copies to be made of it when the prompt's logits are there
    int64_t preemptions = 0;
    int64_t logits_given = 0;  // rows of prompt_logits so far
    int64_t in_flight = 0;     // passes that have rows of it
    bool awaits_end = false;   // one of them has its last known token
    bool announced = false;    // the caller has seen it start

    // From here on only while it runs.
    int64_t target = 0;     // tokens of its prompt's passes: all that were known at its start
    int64_t issued = 0;     // tokens that passes given so far compute
    int64_t computed = 0;   // tokens of passes that are done
    int64_t cached = 0;     // tokens found in the pool
    bool started = false;   // it has looked for them
    bool in_prompt = true;  // false: it decodes, in `group`
    bool starved = false;   // its prompt got no block in the last pass
    bool moved = false;     // between groups, since its last row
    int64_t group = -1;
    int64_t promise = 0;       // blocks that admission keeps for it
    int64_t fork_promise = 0;  // and for its forks
    std::vector<int64_t> fork_slots;
    SequenceBlocks blocks;

    int64_t size() const { return static_cast<int64_t>(tokens.size()); }
    int64_t remaining() const { return target - issued; }  // of the prompt
};

}  // namespace cleave::runtime
