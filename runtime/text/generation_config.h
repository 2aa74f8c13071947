// SPDX-License-Identifier: Apache-2.0
// Where a model's text begins and ends, from the files beside it.
// In: a model's file or folder. Out: ids, each from the first of generation_config.json,
// genai_config.json (its "model") and config.json that has one that is not null.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace cleave::runtime {

struct GenerationConfig {
    std::vector<int32_t> eos_ids;  // in the file's order, none twice
    std::optional<int32_t> bos_id;
    std::optional<int32_t> pad_id;
    std::string eos_source;  // the file that gave eos_ids; empty: none did
};

// Files that are absent give nothing; a malformed one is a UserError.
GenerationConfig load_generation_config(const std::filesystem::path& model);

// The ids that end a sequence: the model's own, else the tokenizer's end-of-sequence token, else
// none.
std::vector<int32_t> stop_ids(const GenerationConfig& config, const Tokenizer* tokenizer);

}  // namespace cleave::runtime
