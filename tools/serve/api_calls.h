// SPDX-License-Identifier: Apache-2.0
// Bodies of OpenAI's API (api reference of 2024-10: completions, chat completions) as requests of
// the engine. In: JSON of a client. Out: an ApiCall, or an ApiError with the field in it. Pure, but
// for seeds that nobody gave.
// Invariants: a field that would change the answer and is not supported is an error, never ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/engine/request.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace cleave::serve {

using Json = nlohmann::ordered_json;

class Grammars;

// What is served; outlives all calls.
struct ServedModel {
    std::string name;
    const runtime::Tokenizer* tokenizer = nullptr;  // never null
    std::optional<runtime::ChatTemplate> chat;
    std::string no_chat;  // why there is none
    std::vector<int32_t> stop_ids;
    int64_t vocab = 0;
    int64_t context = 0;                       // positions of a sequence
    std::shared_ptr<const Grammars> grammars;  // of its vocabulary; never null
};

// Answered in OpenAI's form.
struct ApiError {
    int status = 400;
    std::string message, type = "invalid_request_error", param, code;
    int64_t retry_after = 0;  // seconds
};
Json error_json(const ApiError& error);

// Whether an answer is a call of a function (tools/serve/tool_call.h).
enum class ToolCalls : uint8_t { kNever, kMay, kMust };

struct ApiCall {
    bool is_chat = false;
    bool stream = false, include_usage = false;
    bool echo = false;
    ToolCalls calls_tools = ToolCalls::kNever;
    bool wants_tokens = true;  // false: max_tokens 0, for the prompt's log-probabilities alone
    int64_t copies = 1;
    std::optional<int32_t> logprobs;
    std::vector<runtime::EngineRequest> requests;  // one for each prompt, or several (split_copies)
};

// Texts of one prompt that an engine does not run at once become requests of their own, which
// differ by EngineRequest::first_copy and follow each other.
void split_copies(ApiCall& call, const runtime::EngineLimits& limits);

// ApiError is thrown; nothing else for anything that a client may send. `salt`: of the client's
// tenant (EngineRequest::salt).
ApiCall parse_completion(std::string_view body, const ServedModel& model, uint64_t salt);
ApiCall parse_chat(std::string_view body, const ServedModel& model, uint64_t salt);

// The text that a chat becomes, and its ids.
struct RenderedChat {
    std::string text;
    std::vector<int32_t> ids;
};
RenderedChat render_chat(const Json& body, const ServedModel& model);

// ApiError (404) where the body's "model" is another one; without it, it is this one.
void check_model(const Json& body, const ServedModel& model);

// An object, or an ApiError with line and column.
Json parse_body(std::string_view body);

}  // namespace cleave::serve
