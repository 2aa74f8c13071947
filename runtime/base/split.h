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

}  // namespace cleave
