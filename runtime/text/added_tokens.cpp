// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/added_tokens.h"

#include <algorithm>

#include "runtime/text/utf8.h"

namespace cleave::runtime {

namespace {

bool stands_alone(std::string_view text, size_t begin, size_t end) {
    const bool word_before =
        begin > 0 && is_word_char(next_char(text, previous_char(text, begin)).code);
    const bool word_after = end < text.size() && is_word_char(next_char(text, end).code);
    return !word_before && !word_after;
}

size_t skip_space_left(std::string_view text, size_t begin, size_t limit) {
    while (begin > limit) {
        const size_t previous = previous_char(text, begin);
        if (previous < limit || !is_whitespace(next_char(text, previous).code)) break;
        begin = previous;
    }
    return begin;
}

size_t skip_space_right(std::string_view text, size_t end) {
    while (end < text.size()) {
        const Utf8Char c = next_char(text, end);
        if (!is_whitespace(c.code)) break;
        end += c.size;
    }
    return end;
}

}  // namespace

void AddedTokenMatcher::add(AddedToken token) {
    if (token.text.empty()) return;  // matches nothing
    size_t node = 0;
    for (const char byte : token.text) {
        if (const size_t* next = child(node, byte)) {
            node = *next;
            continue;
        }
        nodes_[node].children.emplace_back(byte, nodes_.size());
        node = nodes_.size();
        nodes_.emplace_back();
    }
    nodes_[node].token = tokens_.size();
    tokens_.push_back(std::move(token));
}

const size_t* AddedTokenMatcher::child(size_t node, char byte) const {
    for (const auto& [label, next] : nodes_[node].children) {
        if (label == byte) return &next;
    }
    return nullptr;
}

std::optional<size_t> AddedTokenMatcher::longest_match(std::string_view text, size_t at) const {
    std::optional<size_t> best;
    size_t node = 0;
    for (; at < text.size(); ++at) {
        const size_t* next = child(node, text[at]);
        if (next == nullptr) break;
        node = *next;
        if (nodes_[node].token) best = nodes_[node].token;
    }
    return best;
}

std::vector<TextSegment> AddedTokenMatcher::split(std::string_view text) const {
    std::vector<TextSegment> segments;
    size_t done = 0;  // everything before is in a segment
    for (size_t at = 0; at < text.size();) {
        const std::optional<size_t> match = longest_match(text, at);
        if (!match) {
            ++at;
            continue;
        }
        const AddedToken& token = tokens_[*match];
        size_t begin = at;
        size_t end = at + token.text.size();
        at = end;
        if (token.single_word && !stands_alone(text, begin, end)) continue;
        // A token before this one may have taken white space that this one begins with.
        begin = std::max(begin, done);
        if (token.lstrip) begin = skip_space_left(text, begin, done);
        if (token.rstrip) end = skip_space_right(text, end);
        if (begin > done) segments.push_back({{done, begin}, std::nullopt});
        segments.push_back({{begin, end}, token.id});
        done = std::max(done, end);
    }
    if (done < text.size()) segments.push_back({{done, text.size()}, std::nullopt});
    return segments;
}

}  // namespace cleave::runtime
