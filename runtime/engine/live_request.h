// SPDX-License-Identifier: Apache-2.0
// A request while it runs: rows of logits become tokens, text, and the events of its copies.
// Knows no threads and no scheduler. One event ends each copy; nothing is made for an ended copy.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine/request.h"
#include "runtime/text/stop_matcher.h"
#include "runtime/text/stream_decoder.h"

namespace cleave::runtime {

// UserError for a request that is wrong in itself, whatever the plan has room for.
void check_request(const EngineRequest& request, int64_t vocab, const Tokenizer* tokenizer);

class LiveRequest {
public:
    using Clock = std::chrono::steady_clock;

    // The request has passed check_request.
    LiveRequest(EngineRequest request, EventSink sink, const Tokenizer* tokenizer);

    // Whether passes must give logits for it, not only the greedy choice.
    bool wants_logits() const;

    void started(int64_t cached_tokens);

    // A row of the prompt at `position`: the log-probability of the token behind it. Adds to
    // `event`; the last row of a request for the prompt alone ends it. False, and nothing, where
    // the row holds a NaN.
    bool take_prompt_row(std::span<const float> logits, int64_t position, EngineEvent& event);

    // The next token of a copy, whose row stands at `position`: chosen from logits [vocab], or
    // `greedy` where there are none. Adds to `event`, with its finish where it ends the copy.
    // False where the row holds a NaN; nothing is added then. A rule that fails ends the copy with
    // a fault.
    bool take_token(std::span<const float> logits, int32_t greedy, int64_t position, bool is_last,
                    EngineEvent& event);

    // Copies that have not ended.
    std::vector<int64_t> open_copies() const;
    // Ends a copy from outside: `event` gets its finish.
    void end(FinishReason reason, const std::string& message, EngineEvent& event);

    RequestId id = 0;
    bool is_cancelled = false;  // by the engine's callers, under its lock
    bool is_silent = false;     // the sink threw
    EventSink sink;

private:
    // A text.
    struct Copy {
        std::optional<StreamDecoder> decoder{};  // with a tokenizer
        StopMatcher matcher;
        TokenCounts counts{};
        std::unique_ptr<TokenRule> rule{};  // where the request has one
        bool is_open = true;
    };
    // By the copy's rule, where it has one. kNoToken where no token may follow.
    int32_t choose(Copy& copy, std::span<const float> logits, const EngineEvent& event,
                   int64_t position) const;
    std::string text_of(Copy& copy, int32_t token, bool is_stop_id);
    void finish(Copy& copy, FinishReason reason, EngineEvent& event);

    EngineRequest request_;
    std::vector<Copy> copies_;
    int64_t open_ = 0;
    RequestUsage usage_;
    Clock::time_point added_ = Clock::now();
    std::optional<Clock::time_point> started_, first_token_;
};

}  // namespace cleave::runtime
