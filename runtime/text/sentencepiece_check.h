// SPDX-License-Identifier: Apache-2.0
// What the SentencePiece library takes on trust in a tokenizer.model: the table of its normaliser,
// a trie that the library follows without a bound.
#pragma once

#include <string>
#include <string_view>

namespace cleave::runtime {

// `model`: the bytes of a tokenizer.model; `file`: what errors name. UserError where they are no
// message, or a table of theirs could lead the library out of it.
void check_sentencepiece_model(std::string_view model, const std::string& file);

}  // namespace cleave::runtime
