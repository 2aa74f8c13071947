// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/api_calls.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/errors.h"
#include "runtime/base/json_file.h"
#include "tools/cli/spelling.h"
#include "tools/serve/answer_format.h"
#include "tools/serve/fields.h"
#include "tools/serve/known_fields.h"

namespace cleave::serve {
namespace {

constexpr int64_t kDefaultTokens = 16;  // of a completion, as OpenAI's
constexpr size_t kMostPrompts = 256, kMostStops = 16;

uint64_t seed_of(const Json& body) {
    if (const Json* seed = field(body, "seed")) {
        if (!seed->is_number_integer()) refuse("seed", "seed: expected a whole number");
        return seed->is_number_unsigned() ? seed->get<uint64_t>()
                                          : static_cast<uint64_t>(seed->get<int64_t>());
    }
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

std::vector<runtime::LogitBias> biases_of(const Json& body) {
    std::vector<runtime::LogitBias> biases;
    const Json* map = field(body, "logit_bias");
    if (!map) return biases;
    const std::string expected = "logit_bias: expected {\"TOKEN ID\": number from -100 to 100}";
    if (!map->is_object()) refuse("logit_bias", expected);
    for (const auto& [key, value] : map->items()) {
        if (!value.is_number() || key.empty() || key.size() > 9 ||
            key.find_first_not_of("0123456789") != std::string::npos)
            refuse("logit_bias", expected);
        biases.push_back({std::stoi(key), value.get<float>()});
    }
    return biases;
}

runtime::SamplingOptions sampling_of(const Json& body) {
    runtime::SamplingOptions options;
    options.temperature = number(body, "temperature", 1.0f, 0, 100);
    options.top_p = number(body, "top_p", 1.0f, 0, 1);
    options.top_k = number(body, "top_k", 0, -1, std::numeric_limits<int32_t>::max());
    if (options.top_k < 0) options.top_k = 0;  // as vLLM's clients say "all"
    options.min_p = number(body, "min_p", 0.0f, 0, 1);
    options.repetition_penalty = number(body, "repetition_penalty", 1.0f, 0, 10);
    options.presence_penalty = number(body, "presence_penalty", 0.0f, -2, 2);
    options.frequency_penalty = number(body, "frequency_penalty", 0.0f, -2, 2);
    options.seed = seed_of(body);
    options.logit_bias = biases_of(body);
    return options;
}

std::vector<std::string> stops_of(const Json& body) {
    const Json* stop = field(body, "stop");
    if (!stop) return {};
    std::vector<std::string> stops;
    const Json list = stop->is_array() ? *stop : Json::array({*stop});
    for (const Json& one : list) {
        if (!one.is_string() || one.get_ref<const std::string&>().empty() ||
            stops.size() == kMostStops)
            refuse("stop", fmt::format("stop: expected a text, or a list of up to {}; none empty",
                                       kMostStops));
        stops.push_back(one.get<std::string>());
    }
    return stops;
}

// What both kinds of calls have in common. The prompts' requests follow.
ApiCall common_fields(const Json& body, const ServedModel& model) {
    check_model(body, model);
    check_fields(body);
    ApiCall call;
    call.stream = flag(body, "stream", false);
    if (const Json* options = field(body, "stream_options")) {
        if (!options->is_object()) refuse("stream_options", "stream_options: expected an object");
        call.include_usage = flag(*options, "include_usage", false);
    }
    call.copies = number<int64_t>(body, "n", 1, 1, static_cast<double>(runtime::kMostCopies));
    return call;
}

// Empty where `list` is null.
std::vector<int32_t> ids_of(const Json* list, const std::string& param) {
    std::vector<int32_t> ids;
    if (list && !list->is_array()) refuse(param, param + ": expected a list of token ids");
    for (const Json& id : list ? *list : Json::array()) {
        if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX)
            refuse(param, param + ": token ids are whole numbers from 0");
        ids.push_back(id.get<int32_t>());
    }
    return ids;
}

runtime::EngineRequest common_request(const Json& body, const ServedModel& model, ApiCall& call,
                                      uint64_t salt) {
    runtime::EngineRequest request;
    request.sampling = sampling_of(body);
    request.copies = call.copies;
    request.stop_texts = stops_of(body);
    request.stop_ids = ids_of(field(body, "stop_token_ids"), "stop_token_ids");
    if (!flag(body, "ignore_eos", false))
        request.stop_ids.insert(request.stop_ids.end(), model.stop_ids.begin(),
                                model.stop_ids.end());
    request.logprobs = call.logprobs;
    request.salt = salt;
    set_answer_format(body, model, call, request);
    return request;
}

std::vector<std::vector<int32_t>> prompts_of(const Json& body, const ServedModel& model) {
    const Json* prompt = field(body, "prompt");
    if (!prompt) refuse("prompt", "prompt is missing: a text, a list of texts, or token ids");
    const bool adds_special = flag(body, "add_special_tokens", true);
    const auto encode = [&](const Json& text) {
        return model.tokenizer->encode(text.get_ref<const std::string&>(), adds_special);
    };
    if (prompt->is_string()) return {encode(*prompt)};
    if (!prompt->is_array() || prompt->empty() || prompt->size() > (1u << 22))
        refuse("prompt", "prompt: expected a text, a list of texts, or token ids");
    if (prompt->front().is_number()) return {ids_of(prompt, "prompt")};
    if (prompt->size() > kMostPrompts)
        refuse("prompt", fmt::format("prompt: at most {} in one call", kMostPrompts));
    std::vector<std::vector<int32_t>> prompts;
    for (const Json& one : *prompt) {
        if (!one.is_string() && !one.is_array())
            refuse("prompt", "prompt: expected a text, a list of texts, or token ids");
        prompts.push_back(one.is_string() ? encode(one) : ids_of(&one, "prompt"));
    }
    return prompts;
}

// That it has tokens, and that the context has room for it and the new ones.
void check_prompt(const std::vector<int32_t>& ids, int64_t new_tokens, const ServedModel& model,
                  const std::string& param) {
    if (ids.empty()) refuse(param, param + ": no tokens; at least one is needed");
    const auto length = static_cast<int64_t>(ids.size());
    if (length + new_tokens <= model.context) return;
    ApiError error;
    error.code = "context_length_exceeded";
    error.param = length < model.context ? "max_tokens" : param;
    error.message =
        length < model.context
            ? fmt::format("the prompt's {} tokens and {} new ones are {}; the context has {}",
                          length, new_tokens, length + new_tokens, model.context)
            : fmt::format("the prompt's {} tokens leave no room in the context of {}", length,
                          model.context);
    throw error;
}

// Errors of the libraries are the client's here, too.
template <class Parse>
ApiCall as_api_error(Parse&& parse) {
    try {
        return parse();
    } catch (const UserError& error) {
        ApiError api;
        api.message = tools::spell_for_api(error.what());
        throw api;
    } catch (const nlohmann::json::exception& error) {
        ApiError api;
        api.message = error.what();
        throw api;
    }
}

}  // namespace

Json error_json(const ApiError& error) {
    Json json{{"message", error.message}, {"type", error.type}};
    json["param"] = error.param.empty() ? Json() : Json(error.param);
    json["code"] = error.code.empty() ? Json() : Json(error.code);
    return {{"error", json}};
}

Json parse_body(std::string_view body) {
    try {
        Json json = parse_ordered_json(body, "the body");
        if (!json.is_object()) refuse("", "the body: expected a JSON object");
        return json;
    } catch (const UserError& error) {
        refuse("", error.what());
    }
}

void check_model(const Json& body, const ServedModel& model) {
    const Json* name = field(body, "model");
    if (!name) return;
    if (!name->is_string()) refuse("model", "model: expected a text");
    if (*name == model.name) return;
    ApiError error;
    error.status = 404;
    error.code = "model_not_found";
    error.param = "model";
    error.message = fmt::format("the model {} is not served here; {} is", name->dump(), model.name);
    throw error;
}

void split_copies(ApiCall& call, const runtime::EngineLimits& limits) {
    std::vector<runtime::EngineRequest> parts;
    for (runtime::EngineRequest& request : call.requests) {
        const auto prompt = static_cast<int64_t>(request.prompt.size());
        const int64_t tokens = std::min(limits.context, prompt + request.max_new_tokens);
        const int64_t fitting = (limits.num_blocks - 1) / planner::kv_blocks(tokens);
        const int64_t most = std::max<int64_t>(1, std::min(limits.slots, fitting));
        for (int64_t first = 0; first < request.copies; first += most) {
            runtime::EngineRequest& part = parts.emplace_back(request);
            part.first_copy = first;
            part.copies = std::min(most, request.copies - first);
        }
    }
    call.requests = std::move(parts);
}

ApiCall parse_completion(std::string_view text, const ServedModel& model, uint64_t salt) {
    return as_api_error([&] {
        const Json body = parse_body(text);
        ApiCall call = common_fields(body, model);
        if (const Json* logprobs = field(body, "logprobs"); logprobs && *logprobs != false)
            call.logprobs = number(body, "logprobs", 0, 0, runtime::kMostTopLogprobs);
        call.echo = flag(body, "echo", false);
        const auto tokens = number<int64_t>(body, "max_tokens", kDefaultTokens, 0, INT32_MAX);
        call.wants_tokens = tokens > 0;
        if (tokens == 0 && !(call.echo && call.logprobs))
            refuse("max_tokens", "max_tokens: 0 goes with echo and logprobs alone");
        runtime::EngineRequest request = common_request(body, model, call, salt);
        if (call.echo) request.prompt_logprobs = call.logprobs;
        request.max_new_tokens = tokens;
        for (std::vector<int32_t>& prompt : prompts_of(body, model)) {
            check_prompt(prompt, tokens, model, "prompt");
            request.prompt = std::move(prompt);
            call.requests.push_back(request);
        }
        return call;
    });
}

namespace {

// OpenAI's clients write a call's arguments as a text; templates take the object that it is.
void read_arguments(Json& message) {
    const Json* calls = field(message, "tool_calls");
    if (!calls) return;
    const std::string expected =
        "messages: tool_calls are a list of {\"function\": {\"name\": ..., \"arguments\": a JSON "
        "object as text}}";
    if (!calls->is_array()) refuse("messages", expected);
    for (Json& call : message["tool_calls"]) {
        const bool fits = call.is_object() && call.value("function", Json()).is_object() &&
                          call["function"].value("name", Json()).is_string();
        if (!fits) refuse("messages", expected);
        Json& arguments = call["function"]["arguments"];
        if (arguments.is_string())
            arguments = parse_ordered_json(arguments.get<std::string>(), "arguments of tool_calls");
        if (!arguments.is_object()) refuse("messages", expected);
    }
}

// Of the whole chat with `tools`, null where the model has none.
std::string render_with(const Json& messages, runtime::ChatOptions options, const Json& tools,
                        const ServedModel& model) {
    if (!tools.is_null()) options.variables["tools"] = tools;
    return model.chat->render(messages, options);
}

}  // namespace

RenderedChat render_chat(const Json& body, const ServedModel& model) {
    if (!model.chat) refuse("messages", "no chat template: " + model.no_chat);
    const Json* messages = field(body, "messages");
    if (!messages || !messages->is_array() || messages->empty())
        refuse("messages", "messages: expected a list of {\"role\": ..., \"content\": ...}");
    Json list = *messages;
    for (Json& message : list) {
        if (!message.is_object() || !message.value("role", Json()).is_string())
            refuse("messages", "messages: each has a role, a text");
        read_arguments(message);
        Json& content = message["content"];
        if (content.is_null()) content = "";
        if (content.is_string()) continue;
        // Parts of a text; images and sound are no part of what these models take.
        std::string whole;
        if (!content.is_array()) refuse("messages", "messages: content is a text");
        for (const Json& part : content) {
            if (!part.is_object() || part.value("type", Json()) != "text" ||
                !part.value("text", Json()).is_string())
                refuse("messages", "messages: content has texts alone, {\"type\": \"text\", ...}");
            whole += part["text"].get_ref<const std::string&>();
        }
        content = whole;
    }
    runtime::ChatOptions options;
    options.add_generation_prompt = flag(body, "add_generation_prompt", true);
    if (const Json* variables = field(body, "chat_template_kwargs")) {
        if (!variables->is_object())
            refuse("chat_template_kwargs", "chat_template_kwargs: expected an object");
        options.variables = *variables;
    }
    RenderedChat rendered;
    const Json tools = template_tools(body);
    rendered.text = render_with(list, options, tools, model);
    if (needs_template(body) && rendered.text == render_with(list, options, nullptr, model))
        refuse("tools",
               "tools: the model's chat template has no place for them, so it would never call one "
               "by itself: a tool_choice that demands a call is possible");
    rendered.ids = model.tokenizer->encode(rendered.text, false);
    return rendered;
}

ApiCall parse_chat(std::string_view text, const ServedModel& model, uint64_t salt) {
    return as_api_error([&] {
        const Json body = parse_body(text);
        ApiCall call = common_fields(body, model);
        call.is_chat = true;
        if (flag(body, "echo", false)) refuse("echo", "echo: goes with completions alone");
        if (flag(body, "add_special_tokens", false))
            refuse("add_special_tokens", "add_special_tokens: a chat's template writes them");
        if (flag(body, "logprobs", false))
            call.logprobs = number(body, "top_logprobs", 0, 0, runtime::kMostTopLogprobs);
        else if (field(body, "top_logprobs"))
            refuse("top_logprobs", "top_logprobs: goes with \"logprobs\": true alone");
        runtime::EngineRequest request = common_request(body, model, call, salt);
        request.prompt = render_chat(body, model).ids;
        check_prompt(request.prompt, 1, model, "messages");
        const int64_t room = model.context - static_cast<int64_t>(request.prompt.size());
        const std::string limit =
            field(body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
        request.max_new_tokens =
            number<int64_t>(body, limit, std::max<int64_t>(1, room), 1, INT32_MAX);
        check_prompt(request.prompt, request.max_new_tokens, model, "messages");
        call.requests.push_back(std::move(request));
        return call;
    });
}

}  // namespace cleave::serve
