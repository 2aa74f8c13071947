// SPDX-License-Identifier: Apache-2.0
// The "pre_tokenizer" of a tokenizer.json: cuts text into pieces across which nothing merges.
// In: the JSON of one pre-tokenizer (or null). Out: a function that cuts and rewrites pieces, each
// valid UTF-8 and not empty. Supported: ByteLevel, Split, Metaspace, Digits, Punctuation,
// Whitespace, WhitespaceSplit, CharDelimiterSplit, Sequence; any other is a UserError naming it.
// To add one: a builder function and a line in the table of the .cpp file.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/text/json_view.h"

namespace cleave::runtime {

struct Piece {
    std::string text;
    bool at_start = false;  // begins where the whole input begins (Metaspace's "first" asks)
};

using PreTokenizer = std::function<void(std::vector<Piece>& pieces)>;

PreTokenizer read_pre_tokenizer(const JsonView& json);

}  // namespace cleave::runtime
