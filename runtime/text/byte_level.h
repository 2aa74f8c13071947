// SPDX-License-Identifier: Apache-2.0
// GPT-2's byte alphabet: each of the 256 bytes is written as one printable character, so that a
// byte-level vocabulary is a table of ordinary strings (function bytes_to_unicode of GPT-2's
// encoder.py). Bytes that print stand for themselves; the others are U+0100, U+0101, ... in order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cleave::runtime {

// The character that stands for `byte`, as UTF-8.
const std::string& byte_level_char(unsigned char byte);

// All bytes of `text` as characters of the alphabet.
std::string to_byte_level(std::string_view text);

// The bytes that `text` stands for; nothing when one of its characters is not in the alphabet.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace cleave::runtime
