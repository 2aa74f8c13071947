// SPDX-License-Identifier: Apache-2.0
// Cuts a Jinja template into tokens, as jinja2's lexer does with trim_blocks and lstrip_blocks on
// and keep_trailing_newline off (the settings of Hugging Face's chat templates). In: the template's
// text. Out: text, tags and what is inside them, each with its line.
#pragma once

#include <string>
#include <vector>

namespace cleave::runtime::jinja {

enum class TokenKind {
    kText,
    kOutputBegin,
    kOutputEnd,
    kTagBegin,
    kTagEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
};

struct Token {
    TokenKind kind = TokenKind::kEnd;
    std::string text;
    int line = 1;
};

// Always ends with a kEnd token. Throws TemplateError.
std::vector<Token> tokenize(const std::string& source);

}  // namespace cleave::runtime::jinja
