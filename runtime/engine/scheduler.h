// SPDX-License-Identifier: Apache-2.0
// Continuous batching over one KV pool: which tokens of which requests a pass takes, and where the
// pool has their blocks. In: requests, cancels, the tokens that passes gave. Out: passes, with
// their block tables. Pure: no threads, no clock, no input or output; the same calls give the same
// passes. One thread uses a Scheduler at a time.
//
//  - Budget: a pass has a row of every sequence of its group that decodes. Prompts share the rest
//    in order of arrival. A prompt that does not end in the pass leaves at most half of the rest to
//    prompts behind it that have fewer tokens left, the shortest first.
//  - Memory: kReserve starts a request only where the pool has room for its last token, and never
//    preempts. kOvercommit preempts the request that arrived last; it goes back to the head of the
//    queue, keeps its tokens and computes their keys and values again.
//  - Sharing: requests with a common prefix and the same salt share its full blocks. Copies of a
//    request share their prompt's blocks, the last, partial one until it is written.
//  - Devices run passes in the order in which next() gave them; the scheduler relies on it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/execute/batch.h"

namespace cleave::runtime {

// What a plan has room for.
struct EngineLimits {
    int64_t slots = 1;        // sequences at once: rows of the block table
    int64_t context = 0;      // tokens of a sequence, prompt and generated
    int64_t num_blocks = 0;   // of the KV pool, with block 0, which no sequence owns
    int64_t max_tokens = 0;   // of a pass
    int64_t max_outputs = 0;  // rows of logits of a pass
    int64_t window = 0;       // no layer sees a key further back; 0: one sees all
    // One sequence runs at a time, its prompt whole in one pass, nothing is shared: the graph's
    // operators see the whole pass, such as those that quantise over it.
    bool whole_passes = false;

    int64_t blocks_per_slot() const { return planner::kv_blocks(context); }
};
EngineLimits limits_of(const planner::Plan& plan);

enum class KvMode : uint8_t { kReserve, kOvercommit };

struct SchedulerOptions {
    KvMode kv_mode = KvMode::kReserve;
    bool share_prefixes = true;
    int64_t max_queue = 1024;  // requests that wait for their first pass
    int64_t token_budget = 0;  // tokens of a pass, at least `slots`; 0: limits.max_tokens
    int64_t groups = 1;        // passes in flight at most, each with decode rows of its own
};

using RequestId = int64_t;  // 0, 1, 2, ... in the order of arrival
using PassId = int64_t;     // 0, 1, 2, ... in the order of next()

struct ScheduledRequest {
    std::vector<int32_t> prompt;
    int64_t max_new_tokens = 128;  // of each copy; 0: logits of the prompt alone
    int64_t copies = 1;            // continuations of the prompt, each a sequence of its own
    uint64_t salt = 0;             // of the tenant: only requests of one salt share prefixes
    bool prompt_logits = false;    // an output of every token of the prompt; takes no cached prefix
};

// What became of a request. Refused where `request` is absent: for ever, or for now.
struct Admission {
    std::optional<RequestId> request;
    bool queue_full = false;  // the same request may be accepted later
    std::string reason;       // of the refusal: what is too large, with the numbers
};

// What is wanted of an output row of a pass. A row of a prompt's last token has one for each copy.
struct ScheduledOutput {
    int64_t output = 0;  // row of the pass's logits, [0, batch.num_outputs())
    RequestId request = 0;
    int64_t copy = 0;              // [0, copies); 0 for rows of the prompt that give no token
    int64_t position = 0;          // of the row's token in its sequence
    bool is_prompt_logit = false;  // wanted by prompt_logits
    bool gives_token = false;      // its token is the sequence's next; false: logits alone
    bool is_last = false;          // by max_new_tokens the sequence ends with this token
};

// Whose tokens a sequence of the batch has.
struct ScheduledSequence {
    RequestId request = 0;
    int64_t copy = 0;
};

// A request whose first tokens are in a pass.
struct StartedRequest {
    RequestId request = 0;
    int64_t cached_tokens = 0;  // of its prompt, found in the pool and not computed
};

struct ScheduledPass {
    PassId id = 0;
    int64_t group = 0;
    // Sequences of one token come first. `blocks` is always set. is_prefill is false where each
    // sequence has one token and each row is an output.
    Batch batch;
    std::vector<ScheduledSequence> sequences;  // [batch.num_sequences()]
    std::vector<ScheduledOutput> outputs;      // in increasing order of `output`, then of `copy`
    std::vector<StartedRequest> started;
};

// What the caller made of a ScheduledOutput that gives a token; of others it is not read.
struct OutputToken {
    int32_t token = 0;
    bool ends = false;  // the sequence ends with it, by a stop token or text
};

enum class SequencePlace : uint8_t { kQueued, kRunning, kEnding };

// A sequence as it is between two calls, for those who watch.
struct SequenceView {
    RequestId request = 0;
    int64_t copy = 0;
    SequencePlace place = SequencePlace::kQueued;  // kEnding: cancelled, with a pass in flight
    int64_t tokens = 0;                            // known, of the prompt and new ones
    int64_t issued = 0;     // of these, in the pool or computed by a pass in flight
    bool in_prompt = true;  // false: it decodes
    int64_t slot = -1, group = -1;
    std::vector<int32_t> blocks;  // by position / 16; 0: given back
};

struct SchedulerStatistics {
    // Of the pool, without block 0: blocks_free + blocks_held + blocks_cached = num_blocks - 1.
    int64_t blocks_free = 0;
    int64_t blocks_held = 0;    // by sequences, each shared block once
    int64_t blocks_cached = 0;  // by none; their prefixes can be found again until they are reused
    int64_t tokens_held = 0;    // positions written or in flight in held blocks, shared ones once
    int64_t waiting = 0;        // requests and preempted sequences in the queue
    int64_t running = 0;        // sequences with a slot
    int64_t in_flight = 0;      // passes
    // Since the start.
    int64_t passes = 0, tokens = 0;
    int64_t preemptions = 0;
    int64_t prefix_queries = 0;  // tokens of prompts that could have been found, one time a start
    int64_t prefix_hits = 0;     // of these, found
};

class Scheduler {
public:
    // UserError where the options do not fit the limits: a budget under `slots` or over max_tokens,
    // a pool under one context.
    Scheduler(const EngineLimits& limits, const SchedulerOptions& options);
    ~Scheduler();
    Scheduler(const Scheduler&) = delete;
    Scheduler& operator=(const Scheduler&) = delete;

    // Queues a request, or refuses it: for ever where it could not run alone, for now where the
    // queue is full. Never throws for what a request holds; tokens' values are not looked at.
    Admission add(ScheduledRequest request);

    // Ends all copies of a request. No pass given later has them. Their blocks return now, or when
    // the last pass in flight with them is done. Nothing for a request that has ended.
    void cancel(RequestId request);

    // The next pass, for a group that has none in flight. Empty where no group has one to give: all
    // are in flight, or no sequence has a token to compute before one in flight is done.
    std::optional<ScheduledPass> next();

    // The oldest pass in flight has run; `tokens` has an entry for each of its `outputs`.
    // Requests that were cancelled meanwhile take no notice. InternalError for any other pass.
    void done(PassId pass, const std::vector<OutputToken>& tokens);

    // No request waits or runs and no pass is in flight.
    bool idle() const;
    // Whether the request waits or runs; a cancelled one does not.
    bool alive(RequestId request) const;
    SchedulerStatistics statistics() const;
    std::vector<SequenceView> sequences() const;  // by place, then in order of arrival

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace cleave::runtime
