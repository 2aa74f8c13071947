// SPDX-License-Identifier: Apache-2.0
// What lies beside a tokenizer and completes it: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json. In: a folder. Out: the fields that encoding and chat templates need.
// A missing file leaves its fields empty; a malformed one is a UserError.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/text/added_tokens.h"
#include "runtime/text/json_view.h"

namespace cleave::runtime {

struct TokenizerConfig {
    // "bos_token", "eos_token", "unk_token", "pad_token", ... with the token's text.
    std::map<std::string, std::string> special_tokens;
    std::optional<bool> add_bos_token;
    std::optional<bool> add_eos_token;
    std::vector<AddedToken> added_tokens;  // by ascending id

    std::optional<std::string> special(const char* name) const;
};

// `model`: a folder, or a GGUF file.
TokenizerConfig load_tokenizer_config(const std::filesystem::path& model);

// One element of a list of added tokens, as tokenizer.json and tokenizer_config.json write it.
AddedToken read_added_token(const JsonView& json, int32_t id);

}  // namespace cleave::runtime
