// SPDX-License-Identifier: Apache-2.0
// UTF-8 by hand: reading one character at a time, and saying exactly what is not UTF-8.
// In: bytes from anywhere. Out: code points, or U+FFFD once for each maximal ill-formed sequence
// (Unicode 15, section 3.9, table 3-7 and "U+FFFD substitution of maximal subparts").
// Nothing here throws; every function accepts every byte sequence.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cleave::runtime {

inline constexpr char32_t kReplacementChar = 0xFFFD;

struct Utf8Char {
    char32_t code = kReplacementChar;
    size_t size = 0;     // bytes consumed: of the character, or of the ill-formed sequence
    bool valid = false;  // false: an ill-formed sequence of `size` bytes
    bool cut = false;    // ill-formed only because the text ended inside the character
};

// The character that starts at byte `at` of `text`; `at` must be below text.size().
Utf8Char next_char(std::string_view text, size_t at);

// The first byte of the character that ends just before byte `end` (1 or more) of valid UTF-8.
size_t previous_char(std::string_view text, size_t end);

void append_utf8(std::string& out, char32_t code);

// The length of the longest valid prefix; text.size() when all of it is valid.
size_t valid_prefix(std::string_view text);

// Each maximal ill-formed sequence becomes one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// Bytes at the end of `text` that begin a character which more bytes could complete (0 to 3).
size_t incomplete_tail(std::string_view text);

// White_Space of the Unicode character database.
bool is_whitespace(char32_t code);

// What a regular expression's \w is in UTS 18: alphabetic, mark, decimal digit, connector.
bool is_word_char(char32_t code);

}  // namespace cleave::runtime
