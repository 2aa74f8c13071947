// SPDX-License-Identifier: Apache-2.0
// Cutting a text around the matches of a pattern, in the five ways that tokenizer.json names.
// In: a text and its matches, left to right. Out: ranges of the text, in order, none empty.
// For "the-final--countdown" and the pattern "-" (the example of Hugging Face's documentation):
//   Removed            the final countdown
//   Isolated           the - final - - countdown
//   MergedWithPrevious the- final- - countdown
//   MergedWithNext     the -final - -countdown
//   Contiguous         the - final -- countdown
#pragma once

#include <vector>

#include "runtime/text/json_view.h"
#include "runtime/text/regex.h"

namespace cleave::runtime {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Reads the name of a behaviour; UserError naming it when unknown.
SplitBehavior read_split_behavior(const JsonView& json);

// `invert`: what lies between the matches counts as the match.
std::vector<TextRange> split_around(size_t text_size, const std::vector<TextRange>& matches,
                                    SplitBehavior behavior, bool invert);

}  // namespace cleave::runtime
