// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/known_fields.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tools/serve/fields.h"

namespace cleave::serve {
namespace {

constexpr std::array<std::string_view, 32> kKnown{
    "model",
    "prompt",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "echo",
    "ignore_eos",
    "response_format",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "chat_template_kwargs",
    "add_generation_prompt",
    "add_special_tokens",
    "best_of",
    "user",
};

// Of OpenAI's interface, of vLLM's or of llama.cpp's server, with the value that changes nothing;
// null: there is none.
struct Unsupported {
    const char* name;
    Json harmless;
};

const std::vector<Unsupported>& unsupported() {
    static const std::vector<Unsupported> kFields{
        {"functions", {}},
        {"function_call", {}},
        {"suffix", {}},
        {"audio", {}},
        {"prediction", {}},
        {"web_search_options", {}},
        {"modalities", Json::array({"text"})},
        {"grammar", {}},
        {"json_schema", {}},
        {"structured_outputs", {}},
        {"guided_json", {}},
        {"guided_regex", {}},
        {"guided_choice", {}},
        {"guided_grammar", {}},
        {"bad_words", {}},
        {"allowed_token_ids", {}},
        {"min_tokens", 0},
        {"truncate_prompt_tokens", {}},
        {"prompt_logprobs", {}},
        {"use_beam_search", false},
        {"length_penalty", 1},
        {"include_stop_str_in_output", false},
        {"skip_special_tokens", true},
        {"continue_final_message", false},
        {"chat_template", {}},
        {"documents", {}},
        {"return_token_ids", false},
        {"return_tokens_as_token_ids", false},
        {"typical_p", 1},
        {"mirostat", 0},
        {"dry_multiplier", 0},
        {"xtc_probability", 0},
        {"n_probs", 0},
    };
    return kFields;
}

// Other servers' names, and ours.
constexpr std::array<std::array<const char*, 2>, 4> kOtherNames{{
    {"max_new_tokens", "max_tokens"},
    {"n_predict", "max_tokens"},
    {"num_predict", "max_tokens"},
    {"repeat_penalty", "repetition_penalty"},
}};

// One character is missing, too many, another, or two have changed places.
bool is_mistyped(std::string_view name, std::string_view known) {
    if (name.size() < 3) return false;
    if (name.size() > known.size()) std::swap(name, known);
    const auto [a, b] = std::ranges::mismatch(name, known);
    const std::string_view rest(a, name.end()), other(b, known.end());
    if (rest.size() < other.size()) return rest == other.substr(1);
    if (rest.size() > other.size() || rest.empty()) return false;
    return rest.substr(1) == other.substr(1) ||
           (rest.size() > 1 && rest[0] == other[1] && rest[1] == other[0] &&
            rest.substr(2) == other.substr(2));
}

}  // namespace

void check_fields(const Json& body) {
    for (const auto& [name, harmless] : unsupported()) {
        const Json* value = field(body, name);
        if (!value || (value->is_structured() && value->empty()) || *value == harmless) continue;
        refuse(name, harmless.is_null()
                         ? fmt::format("{} is not supported: leave it out", name)
                         : fmt::format("{} is not supported: leave it out, or give {}", name,
                                       harmless.dump()));
    }
    if (const Json* best = field(body, "best_of"); best && *best != body.value("n", Json(1)))
        refuse("best_of", "best_of is not supported: leave it out, or give it n's value");
    for (const auto& [name, ours] : kOtherNames)
        if (field(body, name)) refuse(name, fmt::format("{} is called {} here", name, ours));
    for (const auto& [name, value] : body.items()) {
        if (value.is_null() || std::ranges::find(kKnown, name) != kKnown.end()) continue;
        const auto* const near = std::ranges::find_if(
            kKnown, [&](std::string_view known) { return is_mistyped(name, known); });
        if (near != kKnown.end())
            refuse(name, fmt::format("{}: no such field; did you mean {}?", name, *near));
    }
}

}  // namespace cleave::serve
