// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/prompts.h"

#include <charconv>

#include "runtime/base/errors.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/generation_config.h"

namespace cleave::tools {
namespace {

std::vector<int32_t> parse_ids(const std::string& text, int64_t vocab_size) {
    std::vector<int32_t> ids;
    const char* p = text.data();
    const char* end = p + text.size();
    while (p < end) {
        int32_t id = 0;
        auto [next, error] = std::from_chars(p, end, id);
        if (error != std::errc() || (next < end && *next != ','))
            throw UserError("--input-ids {}: expected token ids joined by commas, as in 1,2,3", text);
        if (id < 0 || (vocab_size > 0 && id >= vocab_size))
            throw UserError("--input-ids: token {} is outside the model's vocabulary of {}", id, vocab_size);
        ids.push_back(id);
        p = next < end ? next + 1 : next;
    }
    if (ids.empty() || text.back() == ',') throw UserError("--input-ids {}: expected token ids joined by commas, as in 1,2,3", text);
    return ids;
}

}  // namespace

std::vector<std::vector<int32_t>> prompt_ids(const PromptFlags& flags, const LoadedModel& model, const runtime::Tokenizer* tokenizer) {
    if (flags.prompts.empty() == flags.input_ids.empty())
        throw UserError(flags.prompts.empty() ? "nothing to run: give --prompt TEXT, --input-ids 1,2,3 or --score FILE"
                                              : "--prompt and --input-ids exclude each other: give one of them");
    std::optional<runtime::ChatTemplate> chat;
    if (flags.chat) {
        if (flags.prompts.empty()) throw UserError("--chat puts text into the tokenizer's template: give --prompt TEXT");
        const std::string& folder = flags.tokenizer.empty() ? model.folder : flags.tokenizer;
        chat = runtime::load_chat_template(folder);
        if (!chat)
            throw UserError("--chat: {} has no chat template (looked for chat_template.jinja and \"chat_template\" in tokenizer_config.json); "
                            "give --tokenizer a folder that has one, or leave --chat out", folder);
    }
    std::vector<std::vector<int32_t>> all;
    const int64_t vocab = model.graph.config.vocab_size;
    for (const std::string& ids : flags.input_ids) all.push_back(parse_ids(ids, vocab));
    for (const std::string& prompt : flags.prompts) {
        if (flags.chat) {
            const runtime::ChatMessage message{"user", prompt};
            all.push_back(tokenizer->encode(chat->render(std::span(&message, 1)), false));
        } else {
            all.push_back(tokenizer->encode(prompt));
        }
        if (all.back().empty()) throw UserError("--prompt \"{}\" gives no tokens; the prompt must not be empty", prompt);
        for (int32_t id : all.back())
            if (vocab > 0 && id >= vocab)
                throw UserError("the tokenizer gives token {}, but the model's vocabulary has {}: this tokenizer belongs to another model", id, vocab);
    }
    return all;
}

std::unique_ptr<runtime::Tokenizer> find_tokenizer(const PromptFlags& flags, const LoadedModel& model, std::string* why) {
    if (!flags.tokenizer.empty()) return runtime::load_tokenizer(flags.tokenizer);
    try {
        return runtime::load_tokenizer(model.folder);
    } catch (const UserError& error) {
        *why = error.what();
        return nullptr;
    }
}

std::vector<int32_t> stop_ids(const LoadedModel& model, const runtime::Tokenizer* tokenizer) {
    return runtime::stop_ids(runtime::load_generation_config(model.folder), tokenizer);
}

}  // namespace cleave::tools
