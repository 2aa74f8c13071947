// SPDX-License-Identifier: Apache-2.0
// Regular expressions of tokenizer files, on PCRE2.
// Tokenizer files are written for Oniguruma with Ruby's syntax, as the Hugging Face library uses
// it. PCRE2 agrees on what such files use, once \s, \w and \h are spelled out; classes inside
// classes and class intersection (&&) are UserErrors. A Regex is immutable and may be used from
// several threads at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::runtime {

// Bytes [begin, end) of a text.
struct TextRange {
    size_t begin = 0;
    size_t end = 0;
};

class Regex {
public:
    // `where` names the file and field for errors. Throws UserError on a bad pattern.
    Regex(std::string pattern, const std::string& where);

    // All matches, left to right, not overlapping. `text` must be valid UTF-8.
    std::vector<TextRange> find_all(std::string_view text) const;

private:
    std::string pattern_;
    std::shared_ptr<void> code_;  // pcre2_code, shared by copies
};

}  // namespace cleave::runtime
