// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/api_answer.h"

#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "tools/serve/text_routes.h"

namespace cleave::serve {
namespace {

Json bytes_json(const std::string& text) {
    Json bytes = Json::array();
    for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
    return bytes;
}

}  // namespace

ApiAnswer::ApiAnswer(const ApiCall& call, const ServedModel& model, std::string id,
                     std::shared_ptr<HttpReply> reply)
    : is_chat_(call.is_chat),
      stream_(call.stream),
      include_usage_(call.include_usage),
      echo_(call.echo),
      has_logprobs_(call.logprobs.has_value()),
      calls_tools_(call.calls_tools),
      model_(model),
      id_(std::move(id)),
      created_(std::time(nullptr)),
      reply_(std::move(reply)),
      open_requests_(call.requests.size()) {
    size_t choices = 0;
    for (const runtime::EngineRequest& request : call.requests) {
        const auto copies = static_cast<size_t>(request.copies);
        requests_.push_back({choices, copies, request.prompt, {}, false, request.first_copy == 0});
        choices += copies;
    }
    choices_.resize(choices);
}

std::string ApiAnswer::token_text(int32_t id, bool skip_special) const {
    std::string text;
    runtime::DecodeState state{false, 0};
    model_.tokenizer->append_token(id, skip_special, state, text);
    return text;
}

Json ApiAnswer::object(const char* suffix) const {
    return {{"id", id_},
            {"object", (is_chat_ ? std::string("chat.completion") : "text_completion") + suffix},
            {"created", created_},
            {"model", model_.name}};
}

Json ApiAnswer::usage_json() const {
    return {{"prompt_tokens", usage_.prompt_tokens},
            {"completion_tokens", usage_.new_tokens},
            {"total_tokens", usage_.prompt_tokens + usage_.new_tokens},
            {"prompt_tokens_details", {{"cached_tokens", usage_.cached_tokens}}}};
}

// Of new tokens. A completion's: lists side by side; a chat's: a list of objects.
Json ApiAnswer::logprobs_json(Choice& choice,
                              const std::vector<runtime::TokenLogprobs>& tokens) const {
    if (!has_logprobs_) return nullptr;
    if (is_chat_) {
        Json content = Json::array();
        const auto entry = [&](const runtime::TokenLogprob& token) {
            const std::string text = token_text(token.id, false);
            return Json{{"token", text}, {"logprob", token.logprob}, {"bytes", bytes_json(text)}};
        };
        for (const runtime::TokenLogprobs& token : tokens) {
            Json one = entry(token.chosen);
            one["top_logprobs"] = Json::array();
            for (const runtime::TokenLogprob& top : token.top)
                one["top_logprobs"].push_back(entry(top));
            content.push_back(std::move(one));
        }
        return {{"content", content}};
    }
    Json lists{{"tokens", Json::array()},
               {"token_logprobs", Json::array()},
               {"top_logprobs", Json::array()},
               {"text_offset", Json::array()}};
    for (const runtime::TokenLogprobs& token : tokens) {
        const std::string text = token_text(token.chosen.id, false);
        Json top = Json::object();
        for (const runtime::TokenLogprob& one : token.top)
            top[token_text(one.id, false)] = one.logprob;
        lists["tokens"].push_back(text);
        lists["token_logprobs"].push_back(token.chosen.logprob);
        lists["top_logprobs"].push_back(std::move(top));
        lists["text_offset"].push_back(choice.text_offset);
        choice.text_offset += static_cast<int64_t>(token_text(token.chosen.id, true).size());
    }
    return lists;
}

// The first character of an answer decides whether it is a call, as its grammar has it.
ApiAnswer::Content ApiAnswer::content_of(Choice& choice, const std::string& text) const {
    if (calls_tools_ != ToolCalls::kNever && !text.empty() &&
        !std::exchange(choice.has_text, true) &&
        (calls_tools_ == ToolCalls::kMust || text.front() == '{'))
        choice.reader.emplace();
    if (!choice.reader) return {text, {}};
    return {"", choice.reader->push(text)};
}

// A chat's "message", or a piece of it as "delta".
Json ApiAnswer::message_json(size_t index, const Content& content, bool is_last) {
    Choice& choice = choices_[index];
    Json json = Json::object();
    if (!stream_ || !std::exchange(choice.has_begun, true)) json["role"] = "assistant";
    const ToolCallReader::Piece& call = content.call;
    if (call.name.empty() && call.arguments.empty()) {
        if (!content.text.empty() || !stream_ || !(is_last || choice.reader))
            json["content"] = content.text;
        return json;
    }
    if (json.contains("role")) json["content"] = nullptr;
    Json one = Json::object(), function = Json::object();
    if (stream_) one["index"] = 0;
    if (!call.name.empty()) {
        one["id"] = fmt::format("call_{}_{}", id_, index);
        one["type"] = "function";
        function["name"] = call.name;
    }
    function["arguments"] = call.arguments;
    one["function"] = std::move(function);
    json["tool_calls"] = Json::array({one});
    return json;
}

Json ApiAnswer::choice_json(size_t index, const Content& content, const Json& logprobs,
                            const std::string& finish) {
    Json json{{"index", index}};
    if (!is_chat_)
        json["text"] = content.text;
    else
        json[stream_ ? "delta" : "message"] = message_json(index, content, !finish.empty());
    json["logprobs"] = logprobs;
    // One that a stop text cut ends as a text does.
    const auto& reader = choices_[index].reader;
    const bool is_call = finish == "stop" && reader && reader->is_whole();
    json["finish_reason"] = finish.empty() ? Json() : Json(is_call ? "tool_calls" : finish);
    return json;
}

// The prompt itself, before the text of each copy.
void ApiAnswer::add_prompt(const Request& request) {
    const std::string text = model_.tokenizer->decode(request.prompt);
    for (size_t copy = 0; copy < request.copies; ++copy) {
        const size_t index = request.first_choice + copy;
        Choice& choice = choices_[index];
        Json logprobs;
        if (has_logprobs_) {
            // Nothing is before the first token that would make it likely.
            runtime::TokenLogprobs first;
            first.chosen.id = request.prompt.front();
            logprobs = logprobs_json(choice, {first});
            logprobs["token_logprobs"][0] = nullptr;
            logprobs["top_logprobs"][0] = nullptr;
            const Json rest = logprobs_json(choice, request.logprobs);
            for (const auto& [key, list] : rest.items())
                logprobs[key].insert(logprobs[key].end(), list.begin(), list.end());
        }
        choice.text += text;
        if (stream_) {
            Json piece = object("");
            piece["choices"] = Json::array({choice_json(index, {text, {}}, logprobs, "")});
            stream(piece);
        } else {
            choice.logprobs = std::move(logprobs);
        }
    }
}

void ApiAnswer::add_piece(size_t index, const std::string& text,
                          const std::vector<runtime::TokenLogprobs>& tokens,
                          const std::string& finish) {
    Choice& choice = choices_[index];
    Json logprobs = logprobs_json(choice, tokens);
    const Content content = content_of(choice, text);
    if (stream_) {
        // A token may be a part of a character, or of what is before a function's name.
        const ToolCallReader::Piece& call = content.call;
        if (content.text.empty() && call.name.empty() && call.arguments.empty() && tokens.empty() &&
            finish.empty())
            return;
        Json piece = object(is_chat_ ? ".chunk" : "");
        // Whole: nlohmann's own change of nothing to a list, where memory fails, leaves half of
        // one, which cannot be destroyed.
        piece["choices"] = Json::array({choice_json(index, content, logprobs, finish)});
        return stream(piece);
    }
    choice.text += content.text;
    choice.call.name += content.call.name;
    choice.call.arguments += content.call.arguments;
    choice.finish = finish;
    if (choice.logprobs.is_null()) {
        choice.logprobs = std::move(logprobs);
        return;
    }
    for (const auto& [key, list] : logprobs.items()) {
        Json& all = choice.logprobs[key];
        all.insert(all.end(), list.begin(), list.end());
    }
}

void ApiAnswer::take(size_t request, const runtime::EngineEvent& event) {
    const std::scoped_lock lock(mutex_);
    if (has_ended_) return;
    if (event.finish == runtime::FinishReason::kFault ||
        event.finish == runtime::FinishReason::kCancelled) {
        ApiError error{.status = 500, .type = "server_error"};
        error.message = event.finish == runtime::FinishReason::kFault
                            ? event.message
                            : "the request was cancelled: the server is ending";
        return fail_locked(error);
    }
    Request& told = requests_[request];
    told.logprobs.insert(told.logprobs.end(), event.prompt_logprobs.begin(),
                         event.prompt_logprobs.end());
    if (event.tokens.empty() && !event.finish) return;
    if (echo_ && !std::exchange(told.is_told, true)) add_prompt(told);
    add_piece(told.first_choice + static_cast<size_t>(event.copy), event.text, event.logprobs,
              event.finish ? std::string(runtime::finish_reason_name(*event.finish)) : "");
    if (!event.ends_request) return;
    if (told.counts_prompt) {
        usage_.prompt_tokens += event.usage.prompt_tokens;
        usage_.cached_tokens += event.usage.cached_tokens;
    }
    usage_.new_tokens += event.usage.new_tokens;
    if (--open_requests_ == 0) end();
}

void ApiAnswer::end() {
    has_ended_ = true;
    if (stream_) {
        if (include_usage_) {
            Json last = object(is_chat_ ? ".chunk" : "");
            last["choices"] = Json::array();
            last["usage"] = usage_json();
            stream(last);
        }
        reply_->write("data: [DONE]\n\n");
        return reply_->finish();
    }
    Json whole = object("");
    whole["choices"] = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i)
        whole["choices"].push_back(choice_json(i, {choices_[i].text, choices_[i].call},
                                               choices_[i].logprobs, choices_[i].finish));
    whole["usage"] = usage_json();
    reply_->send({200, "application/json", dump_json(whole), 0, ""});
}

void ApiAnswer::fail(const ApiError& error) {
    const std::scoped_lock lock(mutex_);
    if (!has_ended_) fail_locked(error);
}

// A stream that has begun has its status behind it: the error is its last event.
void ApiAnswer::fail_locked(const ApiError& error) {
    has_ended_ = true;
    if (!has_streamed_)
        return reply_->send({error.status, "application/json", dump_json(error_json(error)),
                             error.retry_after, ""});
    reply_->write("data: " + dump_json(error_json(error)) + "\n\n");
    reply_->finish();
}

void ApiAnswer::stream(const Json& piece) {
    has_streamed_ = true;
    reply_->write("data: " + dump_json(piece) + "\n\n");
}

}  // namespace cleave::serve
