// SPDX-License-Identifier: Apache-2.0
// A scheduler whose every call is checked against books of its own: who owns which block, which
// rows are due, which tokens a request must see.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/engine/scheduler.h"
#include "tests/runtime/engine/fake_model.h"

namespace cleave::test {

class WatchedScheduler {
public:
    WatchedScheduler(const runtime::EngineLimits& limits, const runtime::SchedulerOptions& options);

    runtime::Admission add(runtime::ScheduledRequest request);
    void cancel(runtime::RequestId request);
    // Gives the next pass, if there is one.
    bool next();
    // Runs the oldest pass in flight on the fake model, and gives its tokens back.
    void done();
    bool in_flight() const { return !passes_.empty(); }
    bool in_flight(runtime::RequestId request) const;  // it has rows in such a pass
    // Passes until no request is left. Fails where that takes for ever.
    void drain();

    const runtime::Scheduler& scheduler() const { return scheduler_; }
    const std::optional<runtime::ScheduledPass>& last_pass() const { return last_pass_; }
    int64_t streams_ended() const { return streams_ended_; }
    // New tokens of each copy of a request that has not been cancelled.
    const std::vector<std::vector<int32_t>>& tokens(runtime::RequestId request) const {
        return requests_.at(request).tokens;
    }
    // A token of this kind ends its sequence; 0: none does.
    int32_t stop_every = 0;

private:
    struct Stream {
        runtime::ScheduledRequest request;
        std::vector<std::vector<int32_t>> tokens;  // [copies]
        std::vector<bool> ended;                   // [copies]
        std::vector<AloneSequence> alone;          // [copies]
        std::vector<uint64_t> prompt_outputs;      // [prompt tokens]
        std::set<int64_t> logits_seen;             // positions
        bool over() const;
        std::vector<int32_t> all_tokens(size_t copy) const;
    };
    using Views = std::vector<runtime::SequenceView>;

    void check();
    void check_owners(const Views& views);
    void check_shared(int32_t block, int64_t index,
                      const std::vector<const runtime::SequenceView*>& owners);
    void check_pass(const runtime::ScheduledPass& pass, const Views& before);
    void check_writes(const runtime::ScheduledPass& pass, const Views& views);
    void check_decode_rows(const runtime::ScheduledPass& pass, const Views& views);
    void check_first_prompt(const runtime::ScheduledPass& pass, const Views& before);
    void take_output(const runtime::ScheduledOutput& output, uint64_t value,
                     runtime::OutputToken& token);

    runtime::EngineLimits limits_;
    runtime::SchedulerOptions options_;
    runtime::Scheduler scheduler_;
    FakeModel model_;
    std::deque<runtime::ScheduledPass> passes_;
    std::optional<runtime::ScheduledPass> last_pass_;
    std::map<runtime::RequestId, Stream> requests_;
    // Of cancelled requests: passes that may still be in flight with them.
    std::map<runtime::RequestId, int64_t> cancelled_;
    // Passes given since a sequence that decodes was due.
    std::map<std::pair<runtime::RequestId, int64_t>, int64_t> due_;
    int64_t streams_ended_ = 0;
};

}  // namespace cleave::test
