// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/split.h"

#include <algorithm>

namespace cleave::runtime {

namespace {

struct Part {
    TextRange range;
    bool is_match;
};

// Matches and the gaps between them: together they cover the text.
std::vector<Part> cover(size_t text_size, const std::vector<TextRange>& matches, bool invert) {
    std::vector<Part> parts;
    size_t at = 0;
    for (const TextRange match : matches) {
        if (match.begin > at) parts.push_back({{at, match.begin}, invert});
        if (match.end > match.begin) parts.push_back({match, !invert});
        at = match.end;
    }
    if (at < text_size) parts.push_back({{at, text_size}, invert});
    return parts;
}

std::vector<TextRange> merge_with_previous(const std::vector<Part>& parts) {
    std::vector<TextRange> out;
    bool after_match = false;
    for (const Part& part : parts) {
        if (part.is_match && !after_match && !out.empty()) {
            out.back().end = part.range.end;
        } else {
            out.push_back(part.range);
        }
        after_match = part.is_match;
    }
    return out;
}

std::vector<TextRange> merge_with_next(const std::vector<Part>& parts) {
    std::vector<TextRange> out;
    bool before_match = false;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->is_match && !before_match && !out.empty()) {
            out.back().begin = part->range.begin;
        } else {
            out.push_back(part->range);
        }
        before_match = part->is_match;
    }
    std::reverse(out.begin(), out.end());
    return out;
}

std::vector<TextRange> merge_equal(const std::vector<Part>& parts) {
    std::vector<TextRange> out;
    for (size_t i = 0; i < parts.size(); ++i) {
        if (i > 0 && parts[i].is_match == parts[i - 1].is_match) {
            out.back().end = parts[i].range.end;
        } else {
            out.push_back(parts[i].range);
        }
    }
    return out;
}

}  // namespace

SplitBehavior read_split_behavior(const JsonView& json) {
    const std::string& name = json.as_string();
    if (name == "Removed") return SplitBehavior::kRemoved;
    if (name == "Isolated") return SplitBehavior::kIsolated;
    if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
    if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
    if (name == "Contiguous") return SplitBehavior::kContiguous;
    json.fail("split behaviour '" + name +
              "' is not supported (supported: Removed, Isolated, MergedWithPrevious, "
              "MergedWithNext, Contiguous)");
}

std::vector<TextRange> split_around(size_t text_size, const std::vector<TextRange>& matches,
                                    SplitBehavior behavior, bool invert) {
    const std::vector<Part> parts = cover(text_size, matches, invert);
    std::vector<TextRange> out;
    switch (behavior) {
        case SplitBehavior::kMergedWithPrevious: return merge_with_previous(parts);
        case SplitBehavior::kMergedWithNext: return merge_with_next(parts);
        case SplitBehavior::kContiguous: return merge_equal(parts);
        case SplitBehavior::kIsolated:
            for (const Part& part : parts) out.push_back(part.range);
            return out;
        case SplitBehavior::kRemoved:
            for (const Part& part : parts) {
                if (!part.is_match) out.push_back(part.range);
            }
            return out;
    }
    return out;
}

}  // namespace cleave::runtime
