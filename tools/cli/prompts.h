// SPDX-License-Identifier: Apache-2.0
// From --prompt, --input-ids, --chat and the files beside a model to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "runtime/text/tokenizer.h"
#include "tools/cli/model_source.h"

namespace cleave::tools {

struct PromptFlags {
    std::vector<std::string> prompts;
    std::vector<std::string> files;      // one a prompt; "-": standard input
    std::vector<std::string> input_ids;  // "1,2,3", one a sequence
    bool chat = false;
    std::string tokenizer;  // path; default: beside the model
};

void add_prompt_flags(CLI::App& command, PromptFlags& flags);

// Appends the texts of the files to the prompts, each without the end of its last line, which an
// `echo` and editors add. UserError for a file that is none.
void read_prompt_files(PromptFlags& flags);

// Ids of every sequence. UserError for ids outside the vocabulary, text without a tokenizer,
// neither or both kinds given.
std::vector<std::vector<int32_t>> prompt_ids(const PromptFlags& flags, const LoadedModel& model,
                                             const runtime::Tokenizer* tokenizer);

// The tokenizer of --tokenizer or beside the model; nullptr with the reason in `why` when there is
// none whose vocabulary is the model's (an error when --tokenizer names it).
std::unique_ptr<runtime::Tokenizer> find_tokenizer(const PromptFlags& flags,
                                                   const LoadedModel& model, std::string* why);

// UserError for a tokenizer's ids outside the model's vocabulary.
void check_token_ids(const std::vector<int32_t>& ids, const LoadedModel& model);

// Ids that end a sequence: generation_config.json, genai_config.json, config.json, then the
// tokenizer's eos.
std::vector<int32_t> stop_ids(const LoadedModel& model, const runtime::Tokenizer* tokenizer);

}  // namespace cleave::tools
