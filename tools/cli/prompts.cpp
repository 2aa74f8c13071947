// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/prompts.h"

#include <charconv>
#include <utility>

#include "runtime/base/errors.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/generation_config.h"
#include "tools/cli/files.h"
#include "tools/cli/groups.h"

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
            throw UserError("--input-ids {}: expected token ids joined by commas, as in 1,2,3",
                            text);
        if (id < 0 || (vocab_size > 0 && id >= vocab_size))
            throw UserError("--input-ids: token {} is outside the model's vocabulary of {}", id,
                            vocab_size);
        ids.push_back(id);
        p = next < end ? next + 1 : next;
    }
    if (ids.empty() || text.back() == ',')
        throw UserError("--input-ids {}: expected token ids joined by commas, as in 1,2,3", text);
    return ids;
}

// A model's vocabulary may be padded, and a tokenizer may name special tokens that the model has no
// embedding for ("<pad>"); ordinary tokens beyond the vocabulary, or a vocabulary that is mostly
// no tokens, are another model's.
std::unique_ptr<runtime::Tokenizer> load_matching_tokenizer(const std::string& path,
                                                            const LoadedModel& model) {
    auto tokenizer = runtime::load_tokenizer(path);
    const int64_t vocab = model.graph.config.vocab_size, tokens = tokenizer->vocab_size();
    if (vocab <= 0) return tokenizer;
    bool fits = tokens >= vocab - vocab / 2;
    for (int64_t id = vocab; id < tokens && fits; ++id) {
        const auto token = static_cast<int32_t>(id);
        fits = tokenizer->is_special(token) || tokenizer->token_text(token).empty();
    }
    if (!fits)
        throw UserError(
            "{}: this tokenizer belongs to another model: it has {} tokens, and the model's "
            "vocabulary has {}; give the model's own with "
            "--tokenizer, or token ids with --input-ids",
            path, tokens, vocab);
    return tokenizer;
}

}  // namespace

void add_prompt_flags(CLI::App& command, PromptFlags& flags) {
    command.add_option("--prompt", flags.prompts, "text to continue; repeated: a batch")
        ->allow_extra_args(false)
        ->group(kTextGroup);
    command
        .add_option("--prompt-file", flags.files,
                    "a file with the text to continue; repeated: a batch; -: standard input")
        ->type_name("FILE")
        ->allow_extra_args(false)
        ->group(kTextGroup);
    command
        .add_option("--input-ids", flags.input_ids,
                    "token ids 1,2,3 to continue; repeated: a batch")
        ->type_name("IDS")
        ->allow_extra_args(false)
        ->group(kTextGroup);
    command.add_flag("--chat", flags.chat, "put the prompt into the tokenizer's chat template")
        ->group(kTextGroup);
    command
        .add_option("--tokenizer", flags.tokenizer,
                    "tokenizer.json, tokenizer.model, or their folder; default: beside the model")
        ->type_name("PATH")
        ->group(kTextGroup);
}

void check_token_ids(const std::vector<int32_t>& ids, const LoadedModel& model) {
    const int64_t vocab = model.graph.config.vocab_size;
    for (int32_t id : ids)
        if (vocab > 0 && id >= vocab)
            throw UserError(
                "the tokenizer gives token {}, but the model's vocabulary has {}: leave the text "
                "of that token out, or give the model's own "
                "tokenizer with --tokenizer",
                id, vocab);
}

void read_prompt_files(PromptFlags& flags) {
    bool has_input = false;
    for (const std::string& file : flags.files) {
        if (file == "-" && std::exchange(has_input, true))
            throw UserError("standard input is one prompt: give - once");
        std::string text = read_text_file("--prompt-file", file);
        if (!text.empty() && text.back() == '\n') text.pop_back();
        flags.prompts.push_back(std::move(text));
    }
}

std::vector<std::vector<int32_t>> prompt_ids(const PromptFlags& flags, const LoadedModel& model,
                                             const runtime::Tokenizer* tokenizer) {
    if (flags.prompts.empty() == flags.input_ids.empty())
        throw UserError(
            flags.prompts.empty()
                ? "nothing to run: give --prompt TEXT, --prompt-file FILE, - for standard input, "
                  "--input-ids 1,2,3 or --score FILE"
                : "--prompt and --input-ids exclude each other: give one of them");
    std::optional<runtime::ChatTemplate> chat;
    if (flags.chat) {
        if (flags.prompts.empty())
            throw UserError("--chat puts text into the tokenizer's template: give --prompt TEXT");
        const std::string& folder = flags.tokenizer.empty() ? model.folder : flags.tokenizer;
        chat = runtime::load_chat_template(folder);
        if (!chat)
            throw UserError(
                "--chat: {} has no chat template (looked for chat_template.jinja and "
                "\"chat_template\" in tokenizer_config.json); "
                "give --tokenizer a folder that has one, or leave --chat out",
                folder);
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
        if (all.back().empty())
            throw UserError("--prompt \"{}\" gives no tokens; the prompt must not be empty",
                            prompt);
        check_token_ids(all.back(), model);
    }
    return all;
}

std::unique_ptr<runtime::Tokenizer> find_tokenizer(const PromptFlags& flags,
                                                   const LoadedModel& model, std::string* why) {
    if (!flags.tokenizer.empty()) return load_matching_tokenizer(flags.tokenizer, model);
    try {
        return load_matching_tokenizer(model.folder, model);
    } catch (const UserError& error) {
        *why = error.what();
        return nullptr;
    }
}

std::vector<int32_t> stop_ids(const LoadedModel& model, const runtime::Tokenizer* tokenizer) {
    return runtime::stop_ids(runtime::load_generation_config(model.folder), tokenizer);
}

}  // namespace cleave::tools
