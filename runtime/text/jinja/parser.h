// SPDX-License-Identifier: Apache-2.0
// Tokens to a tree: the grammar of jinja2's parser.py, without template inheritance, imports,
// autoescape, recursive loops and call blocks, which chat templates do not use.
// Any of those is a TemplateError that names it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/lexer.h"

namespace cleave::runtime::jinja {

// Walks the tokens; what both halves of the parser share.
class TokenStream {
public:
    explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

    const Token& current() const { return tokens_[at_]; }
    const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
    Token next();
    bool is_operator(std::string_view text) const;
    bool is_name(std::string_view text) const;
    bool skip_operator(std::string_view text);
    bool skip_name(std::string_view text);
    void expect_operator(std::string_view text);
    void expect_name(std::string_view text);
    void expect(TokenKind kind, const char* what);
    std::string expect_any_name();
    // Turns the current token into an operator.
    void replace_with_operator(std::string text);
    [[noreturn]] void fail_unexpected(const std::string& wanted) const;

private:
    std::vector<Token> tokens_;
    size_t at_ = 0;
};

class ExpressionParser {
public:
    explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

    ExprPtr parse_expression(bool with_conditional = true);
    // One expression, or several with commas between. `end`: a name that ends it.
    ExprPtr parse_tuple(bool with_conditional, std::string_view end = "");
    // name(...)|name(...) of a block; null when there is none.
    ExprPtr parse_filters(ExprPtr value);

private:
    class Nesting;

    ExprPtr parse_or();
    ExprPtr parse_and();
    ExprPtr parse_not();
    ExprPtr parse_compare();
    ExprPtr parse_sum();
    ExprPtr parse_concat();
    ExprPtr parse_product();
    ExprPtr parse_power();
    ExprPtr parse_unary(bool with_filter = true);
    ExprPtr parse_primary();
    ExprPtr parse_constant();
    ExprPtr parse_list();
    ExprPtr parse_dict();
    ExprPtr parse_postfix(ExprPtr value);
    ExprPtr parse_subscript(ExprPtr value);
    ExprPtr parse_test(ExprPtr value);
    void parse_arguments(Expr& call);

    TokenStream& stream_;
    int nesting_ = 0;
};

// The whole template. Throws TemplateError.
std::vector<Stmt> parse_template(const std::string& source);

}  // namespace cleave::runtime::jinja
