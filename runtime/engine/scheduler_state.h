// SPDX-License-Identifier: Apache-2.0
// The sequences of a scheduler and where they are: in the queue, running, or ending, which is
// cancelled with a pass in flight. In: requests and their tokens. Out: sequences that run, each
// with a slot and with blocks kept for it.
// Invariants: the queue is in order of arrival. In kReserve all running sequences can grow to their
// ends. An ending sequence has its slot and blocks until no pass in flight has its rows.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/engine/block_tables.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/sequence.h"

namespace cleave::runtime {

class SchedulerState {
public:
    using Sequences = std::map<SequenceKey, Sequence>;
    // A token that a pass gave to a copy.
    struct CopyToken {
        int64_t copy = 0;
        int32_t token = 0;
        bool ends = false;
    };

    // UserError as Scheduler has it.
    SchedulerState(const EngineLimits& limits, const SchedulerOptions& options);

    Admission add(ScheduledRequest request);
    void cancel(RequestId request);

    // Moves sequences from the head of the queue to those that run, as far as slots and blocks go.
    void admit();
    // Blocks for positions [0, end) of a running sequence, if need be those of sequences that
    // arrived later. False where it was itself the last, and has been preempted.
    bool make_room(SequenceKey key, Sequence& sequence, int64_t end);
    // Preempts later sequences until the pool has a block, or `key` is the last.
    void relieve(SequenceKey key);

    // A pass in flight with rows of the sequence is done.
    void landed(SequenceKey key);
    // The logits of a prompt are there: every copy has its first token.
    void fork(SequenceKey leader, const std::vector<CopyToken>& copies);
    void accept(SequenceKey key, int32_t token, bool ends);
    void end(SequenceKey key);
    // Moves sequences of `group`, which has no pass in flight, to smaller groups.
    void balance(int64_t group);

    Sequence* find(SequenceKey key);  // in the queue or running; null where it ended or ends
    Sequences& running() { return running_; }
    BlockTables& tables() { return tables_; }
    const RequestFacts& facts(RequestId request) const { return requests_.at(request); }
    const EngineLimits& limits() const { return limits_; }
    const SchedulerOptions& options() const { return options_; }  // none is left to a default
    bool alive(RequestId request) const { return requests_.contains(request); }
    bool idle() const { return waiting_.empty() && running_.empty() && ending_.empty(); }
    SchedulerStatistics statistics() const;  // what is known here
    std::vector<SequenceView> views() const;

private:
    std::string never_fits(const ScheduledRequest& request) const;
    int64_t blocks_for(int64_t positions) const;
    void set_promise(SequenceKey key, Sequence& sequence) const;
    int64_t room() const;
    void start_running(SequenceKey key, Sequence& sequence);
    void stop_running(Sequence& sequence);
    void preempt_last();
    void add_fork(Sequence& leader, RequestId request, const CopyToken& copy, bool runs);
    void decode(Sequence& sequence);
    std::vector<std::pair<int64_t, int64_t>> group_loads() const;
    void ended(RequestId request);

    EngineLimits limits_;
    SchedulerOptions options_;
    BlockTables tables_;
    std::map<RequestId, RequestFacts> requests_;  // that wait or run
    Sequences waiting_, running_, ending_;
    std::set<int64_t> free_slots_;
    RequestId next_request_ = 0;
    int64_t queued_ = 0;  // in waiting_ and never preempted
    int64_t preemptions_ = 0;
};

}  // namespace cleave::runtime
