// SPDX-License-Identifier: Apache-2.0
// The "decoder" of a tokenizer.json, compiled to what a stream of tokens needs: the bytes of each
// token on its own, and what happens at the beginning of the text.
// In: the JSON of one decoder (or null). Supported: ByteLevel, ByteFallback, Replace (String),
// Metaspace, Strip, Fuse, Sequence; after Fuse only a Strip at the start, because anything else
// would need the end of the text before its beginning can be shown. Others are UserErrors.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/json_view.h"

namespace cleave::runtime {

// Of what a decoder makes of a token.
inline constexpr size_t kMostTokenBytes = size_t{64} << 10;

struct TokenDecoder {
    std::vector<std::function<void(std::string& token)>> steps;
    std::string separator;   // written between tokens
    std::string strip_char;  // removed up to strip_count times at the start of the text
    size_t strip_count = 0;
    std::string first_token_drops;  // every occurrence in the first token disappears

    // The bytes of a token; `first` when no token was decoded before it.
    std::string bytes_of(std::string_view token, bool first) const;
};

TokenDecoder read_token_decoder(const JsonView& json);

// "<0x0A>" is the byte 10; -1 for any other token.
int byte_of_token(std::string_view token);

// UserError where replacements have made more than that of a text.
void check_replaced(size_t bytes, size_t most_bytes);
// Replaces each occurrence of `from`, checked so.
void replace_all(std::string& text, std::string_view from, std::string_view to,
                 size_t most_bytes = kMostTokenBytes);

}  // namespace cleave::runtime
