// SPDX-License-Identifier: Apache-2.0
// The answer to an ApiCall in OpenAI's form. In: the engine's events of its requests. Out: one JSON
// object, or a stream of server-sent events that ends with [DONE].
// Invariants: a choice has one finish_reason; a stream's pieces put together are the text of the
// whole answer. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/api_calls.h"
#include "tools/serve/http_server.h"
#include "tools/serve/tool_call.h"

namespace cleave::serve {

class ApiAnswer {
public:
    // `model` must outlive it. What it needs of the call is copied.
    ApiAnswer(const ApiCall& call, const ServedModel& model, std::string id,
              std::shared_ptr<HttpReply> reply);

    // An event of the call's request number `request`.
    void take(size_t request, const runtime::EngineEvent& event);
    // In place of all that is still to come.
    void fail(const ApiError& error);

private:
    // Of OpenAI's "choices".
    struct Choice {
        std::string text;
        Json logprobs;  // so far; whole answers alone
        int64_t text_offset = 0;
        std::string finish;      // empty: it goes on
        bool has_begun = false;  // a chat's role was sent
        // A call of a function, where the text is one; its pieces so far in whole answers.
        bool has_text = false;
        std::optional<ToolCallReader> reader;
        ToolCallReader::Piece call;
    };
    // Of the call.
    struct Request {
        size_t first_choice = 0, copies = 1;
        // Of an echo.
        std::vector<int32_t> prompt;
        std::vector<runtime::TokenLogprobs> logprobs;  // from its second token on
        bool is_told = false;
        bool counts_prompt = true;  // in the usage: the first of a prompt
    };
    // What a piece of an answer, or a whole one, has: text, or a part of a call.
    struct Content {
        std::string text;
        ToolCallReader::Piece call;
    };
    Json choice_json(size_t index, const Content& content, const Json& logprobs,
                     const std::string& finish);
    Json message_json(size_t index, const Content& content, bool is_last);
    Content content_of(Choice& choice, const std::string& text) const;
    Json logprobs_json(Choice& choice, const std::vector<runtime::TokenLogprobs>& tokens) const;
    void add_prompt(const Request& request);
    void add_piece(size_t index, const std::string& text,
                   const std::vector<runtime::TokenLogprobs>& logprobs, const std::string& finish);
    std::string token_text(int32_t id, bool skip_special) const;
    Json object(const char* suffix) const;
    Json usage_json() const;
    void stream(const Json& piece);
    void fail_locked(const ApiError& error);
    void end();

    const bool is_chat_, stream_, include_usage_, echo_, has_logprobs_;
    const ToolCalls calls_tools_;
    const ServedModel& model_;
    const std::string id_;
    const int64_t created_;
    const std::shared_ptr<HttpReply> reply_;

    std::mutex mutex_;
    std::vector<Request> requests_;
    std::vector<Choice> choices_;
    size_t open_requests_;
    bool has_streamed_ = false, has_ended_ = false;
    runtime::RequestUsage usage_;  // of the requests that have ended
};

}  // namespace cleave::serve
