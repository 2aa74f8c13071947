// SPDX-License-Identifier: Apache-2.0
// The parts of a text between a character: "a,b" is "a" and "b", and "" is one empty part.
#pragma once

#include <string>
#include <vector>

namespace cleave {

inline std::vector<std::string> split_at(const std::string& text, char at) {
    std::vector<std::string> parts(1);
    for (const char c : text) {
        if (c == at)
            parts.emplace_back();
        else
            parts.back() += c;
    }
    return parts;
}

// Of a text whose parts each end with it, as lines do: "a,b," is "a" and "b", and "" is nothing.
// No stream, which swallows std::bad_alloc and ends early.
inline std::vector<std::string> split_ended(const std::string& text, char by) {
    std::vector<std::string> parts = split_at(text, by);
    if (parts.back().empty()) parts.pop_back();
    return parts;
}

}  // namespace cleave
