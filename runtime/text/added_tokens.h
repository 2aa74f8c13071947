// SPDX-License-Identifier: Apache-2.0
// Tokens that are found in the text before anything else looks at it: "<s>", "<|eot_id|>", ...
// In: the tokens with their flags. Out: the text cut into those tokens and what lies between.
// At each place the longest token wins; matches go left to right and do not overlap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/regex.h"

namespace cleave::runtime {

struct AddedToken {
    int32_t id = 0;
    std::string text;
    bool special = false;      // left out of decoded text unless asked for
    bool normalized = false;   // looked for after the normaliser instead of before it
    bool single_word = false;  // not inside a word
    bool lstrip = false;       // takes the white space before it along
    bool rstrip = false;       // takes the white space after it along
};

struct TextSegment {
    TextRange range;
    std::optional<int32_t> id;  // an added token; nothing: ordinary text
};

class AddedTokenMatcher {
public:
    AddedTokenMatcher() : nodes_(1) {}

    void add(AddedToken token);

    // Segments in order, none of the text ones empty. An empty text has no segments.
    std::vector<TextSegment> split(std::string_view text) const;

private:
    struct Node {
        std::vector<std::pair<char, size_t>> children;  // byte, node
        std::optional<size_t> token;                    // index into tokens_
    };

    // The longest token that starts at byte `at`.
    std::optional<size_t> longest_match(std::string_view text, size_t at) const;
    const size_t* child(size_t node, char byte) const;

    std::vector<AddedToken> tokens_;
    std::vector<Node> nodes_;
};

}  // namespace cleave::runtime
