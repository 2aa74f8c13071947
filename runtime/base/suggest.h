// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?": the known word that a mistyped one is nearest to.
#pragma once

#include <string>
#include <vector>

namespace cleave {

// The nearest of the words by edit distance, where case, dashes, dots, underscores and spaces count
// little; empty when none is near.
std::string nearest_word(const std::string& text, const std::vector<std::string>& words);

// " (did you mean llama-3-8b?)", or nothing when no word is near.
std::string did_you_mean(const std::string& text, const std::vector<std::string>& words);

}  // namespace cleave
