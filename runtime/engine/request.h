// SPDX-License-Identifier: Apache-2.0
// What an engine is asked and what it answers. In: a prompt as token ids, how tokens are chosen and
// what ends the text. Out: events, one after the other, of each of the request's copies.
// Invariants: a copy has one event with `finish` and none behind it. The request's last event has
// `ends_request`; nothing follows it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/scheduler.h"
#include "runtime/engine/token_rule.h"
#include "runtime/generate/logprobs.h"
#include "runtime/generate/sampling.h"

namespace cleave::runtime {

// Texts of one prompt, at most.
inline constexpr int64_t kMostCopies = 128;

struct EngineRequest {
    std::vector<int32_t> prompt;
    SamplingOptions sampling;
    int64_t max_new_tokens = 128;  // of each copy; 0: log-probabilities of the prompt alone
    int64_t copies = 1;            // texts; copy c draws as sequence first_copy + c of a batch does
    int64_t first_copy = 0;        // where another request has those before
    // Each ends a copy; the token is the last of the copy's tokens, and not a part of its text.
    std::vector<int32_t> stop_ids;
    // Each ends a copy; the text ends before it (runtime/text/stop_matcher.h). Needs a tokenizer.
    std::vector<std::string> stop_texts;
    std::optional<int32_t> logprobs;         // of new tokens, with so many most likely ones
    std::optional<int32_t> prompt_logprobs;  // of the prompt's tokens
    TokenRuleMaker rule;                     // what the texts have to keep; empty: nothing
    uint64_t salt = 0;  // of the tenant: only requests of one salt share cached prefixes
};

enum class FinishReason : uint8_t {
    kStop,       // a stop id, a stop text, or the end that the rule has
    kLength,     // max_new_tokens
    kCancelled,  // by cancel() or shutdown()
    kFault,      // `message` says whose: a device's, the rule's, or logits that are not numbers
};
std::string_view finish_reason_name(FinishReason reason);  // "stop", "length", ...

// Of a request that has ended. Seconds are of a steady clock.
struct RequestUsage {
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;   // of the prompt, found in the pool
    int64_t new_tokens = 0;      // of all copies
    double queue_seconds = 0;    // from add() to its first pass
    double prefill_seconds = 0;  // from there to its first token
    double decode_seconds = 0;   // from there to its end
};

struct EngineEvent {
    RequestId request = 0;
    int64_t copy = 0;
    std::vector<int32_t> tokens;
    std::string text;                     // whole characters; empty without a tokenizer
    std::vector<TokenLogprobs> logprobs;  // of `tokens`, where they were asked for
    // Of tokens of the prompt from its second on, in order, before the copies' first tokens.
    std::vector<TokenLogprobs> prompt_logprobs;
    std::optional<FinishReason> finish;
    std::string message;  // of a fault
    bool ends_request = false;
    RequestUsage usage;  // with ends_request
};

// Called on the engine's thread, between passes: it must return at once, or all requests wait. It
// may call the engine's add, cancel and statistics. One that throws is not called again, and its
// request is cancelled.
using EventSink = std::function<void(const EngineEvent&)>;

}  // namespace cleave::runtime
