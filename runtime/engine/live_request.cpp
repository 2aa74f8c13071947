// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine/live_request.h"

#include <algorithm>
#include <exception>
#include <limits>

#include "runtime/base/errors.h"
#include "runtime/base/reason.h"
#include "runtime/execute/greedy.h"
#include "runtime/generate/batching.h"

namespace cleave::runtime {

namespace {

double seconds(LiveRequest::Clock::time_point from, LiveRequest::Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
    switch (reason) {
        case FinishReason::kStop: return "stop";
        case FinishReason::kLength: return "length";
        case FinishReason::kCancelled: return "cancelled";
        case FinishReason::kFault: return "fault";
    }
    return "";
}

void check_request(const EngineRequest& request, int64_t vocab, const Tokenizer* tokenizer) {
    if (request.prompt.empty())
        throw UserError("the prompt is empty; at least one token is needed");
    check_token_ids(request.prompt, vocab, "the prompt");
    check_token_ids(request.stop_ids, vocab, "the list of stop ids");
    check_sampling(request.sampling, vocab);
    for (const auto& top : {request.logprobs, request.prompt_logprobs})
        if (top) check_top_logprobs(*top);
    if (request.copies < 1 || request.copies > kMostCopies)
        throw UserError("{} texts of one prompt were asked for; it is a number from 1 to {}",
                        request.copies, kMostCopies);
    CLEAVE_CHECK(request.first_copy >= 0) << "copies are numbered from 0";
    if (request.max_new_tokens < 0)
        throw UserError("$max_new_tokens {} is negative; give 0 or more", request.max_new_tokens);
    if (request.max_new_tokens == 0 && (!request.prompt_logprobs || request.copies != 1))
        throw UserError(
            "$max_new_tokens 0 asks for nothing but the prompt's log-probabilities: ask for them, "
            "and for one text");
    if (!request.stop_texts.empty() && tokenizer == nullptr)
        throw UserError("stop texts need a tokenizer, and the engine has none; give stop ids");
    StopMatcher matcher(request.stop_texts);
}

LiveRequest::LiveRequest(EngineRequest request, EventSink event_sink, const Tokenizer* tokenizer)
    : sink(std::move(event_sink)), request_(std::move(request)), open_(request_.copies) {
    for (int64_t i = 0; i < request_.copies; ++i) {
        Copy copy{.matcher = StopMatcher(request_.stop_texts)};
        if (tokenizer != nullptr) {
            copy.decoder.emplace(*tokenizer);
            copy.decoder->prime(request_.prompt);
        }
        if (needs_counts(request_.sampling)) copy.counts.add_prompt(request_.prompt);
        if (request_.rule) copy.rule = request_.rule();
        copies_.push_back(std::move(copy));
    }
    usage_.prompt_tokens = static_cast<int64_t>(request_.prompt.size());
}

bool LiveRequest::wants_logits() const {
    return request_.logprobs || request_.prompt_logprobs || request_.rule ||
           !takes_largest_logit(request_.sampling);
}

void LiveRequest::started(int64_t cached_tokens) {
    if (started_) return;
    started_ = Clock::now();
    usage_.cached_tokens = cached_tokens;
}

bool LiveRequest::take_prompt_row(std::span<const float> logits, int64_t position,
                                  EngineEvent& event) {
    if (!are_numbers(logits)) return false;
    const auto next = static_cast<size_t>(position + 1);
    if (next < request_.prompt.size())
        event.prompt_logprobs.push_back(
            logprobs_of(logits, request_.prompt[next], *request_.prompt_logprobs));
    else if (request_.max_new_tokens == 0)
        finish(copies_[0], FinishReason::kLength, event);
    return true;
}

bool LiveRequest::take_token(std::span<const float> logits, int32_t greedy, int64_t position,
                             bool is_last, EngineEvent& event) {
    Copy& copy = copies_[static_cast<size_t>(event.copy)];
    if (copy.rule && !are_numbers(logits)) return false;
    int32_t token = greedy;
    bool is_whole = false;
    try {
        if (!logits.empty()) token = choose(copy, logits, event, position);
        if (copy.rule && token == kNoToken)
            throw UserError("no token of the vocabulary continues what the answer has to keep");
        if (copy.rule) is_whole = copy.rule->take(token);
    } catch (const std::exception& error) {
        end(FinishReason::kFault, reason_of(error), event);
        return true;
    }
    if (token == kNoToken) return false;
    if (!first_token_) first_token_ = Clock::now();
    ++usage_.new_tokens;
    if (needs_counts(request_.sampling)) copy.counts.add(token);
    event.tokens.push_back(token);
    if (request_.logprobs) event.logprobs.push_back(logprobs_of(logits, token, *request_.logprobs));
    const bool is_stop_id = std::ranges::find(request_.stop_ids, token) != request_.stop_ids.end();
    event.text += text_of(copy, token, is_stop_id);
    if (is_stop_id || is_whole || copy.matcher.found())
        finish(copy, FinishReason::kStop, event);
    else if (is_last)
        finish(copy, FinishReason::kLength, event);
    return true;
}

// A token that is not allowed has no probability.
int32_t LiveRequest::choose(Copy& copy, std::span<const float> logits, const EngineEvent& event,
                            int64_t position) const {
    const auto sample = [&](std::span<const float> from) {
        return sample_token(from, request_.sampling,
                            static_cast<uint64_t>(request_.first_copy + event.copy),
                            static_cast<uint64_t>(position + 1), copy.counts);
    };
    const std::span<const uint32_t> allowed =
        copy.rule ? copy.rule->allowed() : std::span<const uint32_t>();
    if (allowed.empty()) return sample(logits);
    const auto is_allowed = [&](size_t id) { return (allowed[id / 32] >> (id % 32) & 1) != 0; };
    std::vector<float> left(logits.begin(), logits.end());
    std::optional<size_t> first;
    for (size_t id = 0; id < left.size(); ++id) {
        if (!is_allowed(id))
            left[id] = -std::numeric_limits<float>::infinity();
        else if (!first)
            first = id;
    }
    if (!first) return kNoToken;
    const int32_t token = sample(left);
    // Where the model itself gives none of them any probability.
    return is_allowed(static_cast<size_t>(token)) ? token : static_cast<int32_t>(*first);
}

std::string LiveRequest::text_of(Copy& copy, int32_t token, bool is_stop_id) {
    if (!copy.decoder || is_stop_id) return "";
    return copy.matcher.push(copy.decoder->push(token));
}

// What waited to become a character or a stop text is text now.
void LiveRequest::finish(Copy& copy, FinishReason reason, EngineEvent& event) {
    if (copy.decoder && (reason == FinishReason::kStop || reason == FinishReason::kLength)) {
        event.text += copy.matcher.push(copy.decoder->finish());
        event.text += copy.matcher.finish();
    }
    copy.is_open = false;
    event.finish = reason;
    if (--open_ > 0) return;
    event.ends_request = true;
    event.usage = usage_;
    const Clock::time_point now = Clock::now();
    event.usage.queue_seconds = seconds(added_, started_.value_or(now));
    if (started_) event.usage.prefill_seconds = seconds(*started_, first_token_.value_or(now));
    if (first_token_) event.usage.decode_seconds = seconds(*first_token_, now);
}

std::vector<int64_t> LiveRequest::open_copies() const {
    std::vector<int64_t> open;
    for (int64_t copy = 0; copy < request_.copies; ++copy)
        if (copies_[static_cast<size_t>(copy)].is_open) open.push_back(copy);
    return open;
}

void LiveRequest::end(FinishReason reason, const std::string& message, EngineEvent& event) {
    event.message = message;
    finish(copies_[static_cast<size_t>(event.copy)], reason, event);
}

}  // namespace cleave::runtime
