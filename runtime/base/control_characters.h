// SPDX-License-Identifier: Apache-2.0
// Names from files are shown in lines of messages and tables: one with a control character (of
// ASCII) would break its line, and is refused by whoever reads it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace cleave {

inline bool is_control_character(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
}

inline bool has_control_characters(std::string_view text) {
    return std::ranges::any_of(text, is_control_character);
}

// With ? for each of them.
inline std::string without_control_characters(std::string text) {
    std::ranges::replace_if(text, is_control_character, '?');
    return text;
}

}  // namespace cleave
