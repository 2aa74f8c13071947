// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?": the known word that a mistyped one is nearest to.
#pragma once

#include <string>
#include <vector>

namespace cleave::tools {

// " (did you mean llama-3-8b?)", or nothing when no word is near: by edit distance, where case,
// dashes, dots, underscores and spaces count little.
std::string did_you_mean(const std::string& text, const std::vector<std::string>& words);

}  // namespace cleave::tools
