// SPDX-License-Identifier: Apache-2.0
// The end of a text at the first of some stop texts, while the text arrives piece by piece.
// In: pieces of text, as StreamDecoder gives them. Out: the text before the stop text. What may be
// the beginning of one waits until later pieces decide, so nothing of a stop text is ever given.
// The stop text that ends first counts, the longest of those that end at one place, so that the
// result does not depend on where the pieces part. Time is linear in the text, whatever it holds.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::runtime {

class StopMatcher {
public:
    // UserError for a stop text that is empty or not UTF-8.
    explicit StopMatcher(const std::vector<std::string>& stops);

    // The text that is now known to be before any stop text: whole characters where the pieces are.
    // Nothing once a stop text was found.
    std::string push(std::string_view piece);

    // The text has ended: what still waited.
    std::string finish();

    // The stop text that was found, by its place in the list.
    std::optional<size_t> found() const { return found_; }

private:
    // Knuth, Morris and Pratt's automaton (SIAM J. Comput. 6(2), 1977).
    struct Pattern {
        std::string text;
        std::vector<size_t> shorter;  // of each length: the longest shorter match that ends there
        size_t matched = 0;           // bytes of it that the text ends with

        void push(char byte);
    };
    std::vector<Pattern> patterns_;
    std::string waiting_;  // the longest end of the text that begins a stop text
    std::optional<size_t> found_;
};

}  // namespace cleave::runtime
