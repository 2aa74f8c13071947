// SPDX-License-Identifier: Apache-2.0
// Decoding while tokens arrive.
// In: token ids, one by one. Out: text, always whole characters; the bytes of a character that is
// not complete yet wait for the next token. All pieces together equal Tokenizer::decode of the ids.
// The tokenizer must outlive the decoder; a decoder belongs to one sequence.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/text/tokenizer.h"

namespace cleave::runtime {

class StreamDecoder {
public:
    explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);

    // Takes in the tokens that stand before the sequence, such as its prompt: what push() gives
    // from here on follows their text, so that both together equal Tokenizer::decode of all ids.
    void prime(std::span<const int32_t> ids);

    // The text that this token completes; often empty inside a multi-byte character.
    std::string push(int32_t id);

    // What still waited: U+FFFD for the beginning of a character that never ended, or nothing.
    // The decoder is then as new.
    std::string finish();

private:
    const Tokenizer* tokenizer_;
    bool skip_special_;
    DecodeState state_;
    std::string pending_;
};

}  // namespace cleave::runtime
