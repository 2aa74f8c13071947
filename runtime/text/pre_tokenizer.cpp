// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/pre_tokenizer.h"

#include <string_view>
#include <utility>

#include "runtime/text/byte_level.h"
#include "runtime/text/metaspace.h"
#include "runtime/text/split.h"

namespace cleave::runtime {

namespace {

// The pattern that ByteLevel means by "use_regex": GPT-2's, from encoder.py.
constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

using FindMatches = std::function<std::vector<TextRange>(std::string_view)>;

FindMatches find_regex(const std::string& pattern, const std::string& where) {
    return [regex = Regex(pattern, where)](std::string_view text) { return regex.find_all(text); };
}

FindMatches find_literal(std::string literal) {
    return [literal = std::move(literal)](std::string_view text) {
        std::vector<TextRange> matches;
        if (literal.empty()) return matches;
        for (size_t at = text.find(literal); at != std::string_view::npos;
             at = text.find(literal, at + literal.size())) {
            matches.push_back({at, at + literal.size()});
        }
        return matches;
    };
}

PreTokenizer cut(FindMatches find, SplitBehavior behavior, bool invert) {
    return [find = std::move(find), behavior, invert](std::vector<Piece>& pieces) {
        std::vector<Piece> out;
        for (const Piece& piece : pieces) {
            const std::string_view text = piece.text;
            for (const TextRange r : split_around(text.size(), find(text), behavior, invert)) {
                out.push_back({std::string(text.substr(r.begin, r.end - r.begin)),
                               piece.at_start && r.begin == 0});
            }
        }
        pieces = std::move(out);
    };
}

PreTokenizer build_byte_level(const JsonView& json) {
    const bool prefix_space = json.bool_or("add_prefix_space", true);
    PreTokenizer split = [](std::vector<Piece>&) {};
    if (json.bool_or("use_regex", true)) {
        split = cut(find_regex(kGpt2Pattern, json.where()), SplitBehavior::kIsolated, false);
    }
    return [prefix_space, split = std::move(split)](std::vector<Piece>& pieces) {
        for (Piece& piece : pieces) {
            if (prefix_space && !piece.text.starts_with(' '))
                piece.text.insert(piece.text.begin(), ' ');
        }
        split(pieces);
        for (Piece& piece : pieces) piece.text = to_byte_level(piece.text);
    };
}

PreTokenizer build_split(const JsonView& json) {
    const JsonView pattern = json.at("pattern");
    FindMatches find = pattern.has("String")
                           ? find_literal(pattern.at("String").as_string())
                           : find_regex(pattern.at("Regex").as_string(), pattern.where());
    return cut(std::move(find), read_split_behavior(json.at("behavior")),
               json.bool_or("invert", false));
}

PreTokenizer build_metaspace(const JsonView& json) {
    const Metaspace meta = read_metaspace(json);
    const PreTokenizer split =
        cut(find_literal(meta.replacement), SplitBehavior::kMergedWithNext, false);
    return [meta, split](std::vector<Piece>& pieces) {
        for (Piece& piece : pieces) {
            std::string text;
            for (const char c : piece.text) {
                if (c == ' ') {
                    text += meta.replacement;
                } else {
                    text += c;
                }
            }
            const bool prepend = meta.scheme == Metaspace::Scheme::kAlways ||
                                 (meta.scheme == Metaspace::Scheme::kFirst && piece.at_start);
            if (prepend && !text.starts_with(meta.replacement)) text.insert(0, meta.replacement);
            piece.text = std::move(text);
        }
        if (meta.split) split(pieces);
    };
}

PreTokenizer build_digits(const JsonView& json) {
    const bool individual = json.bool_or("individual_digits", false);
    return cut(find_regex(R"(\p{N})", json.where()),
               individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false);
}

PreTokenizer build_punctuation(const JsonView& json) {
    const SplitBehavior behavior =
        json.has("behavior") ? read_split_behavior(json.at("behavior")) : SplitBehavior::kIsolated;
    // Unicode counts $+<=>^`|~ as symbols; tokenizers count every ASCII punctuation mark.
    return cut(find_regex(R"([\p{P}$+<=>^`|~])", json.where()), behavior, false);
}

PreTokenizer build_whitespace(const JsonView& json) {
    return cut(find_regex(R"(\w+|[^\w\s]+)", json.where()), SplitBehavior::kRemoved, true);
}

PreTokenizer build_whitespace_split(const JsonView& json) {
    return cut(find_regex(R"(\s)", json.where()), SplitBehavior::kRemoved, false);
}

PreTokenizer build_char_delimiter(const JsonView& json) {
    return cut(find_literal(json.at("delimiter").as_string()), SplitBehavior::kRemoved, false);
}

PreTokenizer build_pre_tokenizers(const JsonView& json) {
    std::vector<PreTokenizer> steps;
    const JsonView list = json.at("pretokenizers");
    for (size_t i = 0; i < list.size(); ++i) steps.push_back(read_pre_tokenizer(list.at(i)));
    return [steps = std::move(steps)](std::vector<Piece>& pieces) {
        for (const PreTokenizer& step : steps) step(pieces);
    };
}

struct PreTokenizerEntry {
    std::string_view type;
    PreTokenizer (*build)(const JsonView&);
};

constexpr PreTokenizerEntry kPreTokenizers[] = {
    {"ByteLevel", build_byte_level},
    {"Split", build_split},
    {"Metaspace", build_metaspace},
    {"Digits", build_digits},
    {"Punctuation", build_punctuation},
    {"Whitespace", build_whitespace},
    {"WhitespaceSplit", build_whitespace_split},
    {"CharDelimiterSplit", build_char_delimiter},
    {"Sequence", build_pre_tokenizers},
};

}  // namespace

PreTokenizer read_pre_tokenizer(const JsonView& json) {
    if (json.raw().is_null()) return [](std::vector<Piece>&) {};
    const std::string& type = json.type();
    std::string supported;
    for (const PreTokenizerEntry& entry : kPreTokenizers) {
        if (entry.type == type) return entry.build(json);
        supported.append(supported.empty() ? "" : ", ").append(entry.type);
    }
    json.fail("pre-tokenizer '" + type + "' is not supported (supported: " + supported + ")");
}

}  // namespace cleave::runtime
