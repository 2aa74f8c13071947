// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "runtime/text/jinja/parser.h"

namespace cleave::runtime::jinja {

Token TokenStream::next() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
}

bool TokenStream::is_operator(std::string_view text) const {
    return current().kind == TokenKind::kOperator && current().text == text;
}

bool TokenStream::is_name(std::string_view text) const {
    return current().kind == TokenKind::kName && current().text == text;
}

bool TokenStream::skip_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    next();
    return true;
}

bool TokenStream::skip_name(std::string_view text) {
    if (!is_name(text)) return false;
    next();
    return true;
}

void TokenStream::expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_unexpected(fmt::format("'{}'", text));
}

void TokenStream::expect_name(std::string_view text) {
    if (!skip_name(text)) fail_unexpected(fmt::format("'{}'", text));
}

void TokenStream::expect(TokenKind kind, const char* what) {
    if (current().kind != kind) fail_unexpected(what);
    next();
}

std::string TokenStream::expect_any_name() {
    if (current().kind != TokenKind::kName) fail_unexpected("a name");
    return next().text;
}

void TokenStream::fail_unexpected(const std::string& wanted) const {
    const Token& token = current();
    std::string found = "'" + token.text + "'";
    if (token.kind == TokenKind::kEnd) found = "the end of the template";
    if (token.kind == TokenKind::kTagEnd) found = "'%}'";
    if (token.kind == TokenKind::kOutputEnd) found = "'}}'";
    if (token.kind == TokenKind::kText) found = "text";
    throw TemplateError(fmt::format("expected {}, found {}", wanted, found), token.line);
}

namespace {

constexpr int kMaxBlocks = 100;  // nested in one another
constexpr const char* kSupportedTags =
    "if, for, set, macro, with, filter, generation, raw, break, continue";

class StatementParser {
public:
    explicit StatementParser(std::vector<Token> tokens)
        : stream_(std::move(tokens)), expressions_(stream_) {}

    std::vector<Stmt> run() {
        std::vector<Stmt> body = parse_until({});
        if (stream_.current().kind != TokenKind::kEnd) unexpected_tag();
        return body;
    }

private:
    using EndNames = std::initializer_list<std::string_view>;

    // Statements up to a tag whose name is one of `ends`; the stream then stands at that name.
    std::vector<Stmt> parse_until(EndNames ends) {
        if (++blocks_ > kMaxBlocks)
            throw TemplateError("blocks are nested too deeply", stream_.current().line);
        std::vector<Stmt> body;
        for (;;) {
            const Token token = stream_.next();
            if (token.kind == TokenKind::kEnd) {
                if (ends.size() == 0) break;
                throw TemplateError(fmt::format("the template ends before '{}'", *(ends.end() - 1)),
                                    token.line);
            }
            if (token.kind == TokenKind::kText) {
                body.push_back(statement(StmtKind::kText, token.line));
                body.back().text = token.text;
            } else if (token.kind == TokenKind::kOutputBegin) {
                body.push_back(statement(StmtKind::kOutput, token.line));
                body.back().expr = expressions_.parse_tuple(true);
                stream_.expect(TokenKind::kOutputEnd, "'}}'");
            } else {
                if (std::any_of(ends.begin(), ends.end(),
                                [&](auto end) { return stream_.is_name(end); }))
                    break;
                body.push_back(parse_tag());
            }
        }
        --blocks_;
        return body;
    }

    static Stmt statement(StmtKind kind, int line) {
        Stmt stmt;
        stmt.kind = kind;
        stmt.line = line;
        return stmt;
    }

    void end_tag() { stream_.expect(TokenKind::kTagEnd, "'%}'"); }

    // The body of a block that has one end.
    std::vector<Stmt> parse_body(std::string_view end) {
        end_tag();
        std::vector<Stmt> body = parse_until({end});
        stream_.expect_name(end);
        end_tag();
        return body;
    }

    Stmt parse_tag() {
        const int line = stream_.current().line;
        if (stream_.skip_name("if")) return parse_if(line);
        if (stream_.skip_name("for")) return parse_for(line);
        if (stream_.skip_name("set")) return parse_set(line);
        if (stream_.skip_name("macro")) return parse_macro(line);
        if (stream_.skip_name("with")) return parse_with(line);
        if (stream_.is_name("filter")) return parse_filter_block(line);
        if (stream_.skip_name("generation")) {
            Stmt stmt = statement(StmtKind::kGroup, line);
            stmt.body = parse_body("endgeneration");
            return stmt;
        }
        for (const auto& [name, kind] :
             {std::pair("break", StmtKind::kBreak), std::pair("continue", StmtKind::kContinue)}) {
            if (!stream_.skip_name(name)) continue;
            if (loops_ == 0) throw TemplateError(fmt::format("'{}' outside of a loop", name), line);
            end_tag();
            return statement(kind, line);
        }
        unexpected_tag();
    }

    [[noreturn]] void unexpected_tag() const {
        const Token& token = stream_.current();
        if (token.kind != TokenKind::kName) stream_.fail_unexpected("the name of a tag");
        if (token.text.starts_with("end") || token.text == "else" || token.text == "elif") {
            throw TemplateError(fmt::format("'{}' without its beginning", token.text), token.line);
        }
        throw TemplateError(fmt::format("the tag '{}' is not supported (supported: {})", token.text,
                                        kSupportedTags),
                            token.line);
    }

    Stmt parse_if(int line) {
        Stmt stmt = statement(StmtKind::kIf, line);
        stmt.expr = expressions_.parse_tuple(false);
        end_tag();
        stmt.body = parse_until({"elif", "else", "endif"});
        const int next_line = stream_.current().line;
        if (stream_.skip_name("elif")) {
            if (++blocks_ > kMaxBlocks)
                throw TemplateError("too many 'elif' in one 'if'", next_line);
            stmt.other.push_back(parse_if(next_line));
            --blocks_;
            return stmt;
        }
        if (stream_.skip_name("else")) {
            stmt.other = parse_body("endif");
            return stmt;
        }
        stream_.expect_name("endif");
        end_tag();
        return stmt;
    }

    Stmt parse_for(int line) {
        Stmt stmt = statement(StmtKind::kFor, line);
        stmt.target = parse_target(false);
        stream_.expect_name("in");
        stmt.expr = expressions_.parse_tuple(false, "recursive");
        if (stream_.skip_name("if")) stmt.condition = expressions_.parse_expression();
        if (stream_.is_name("recursive"))
            throw TemplateError("a recursive loop is not supported", line);
        end_tag();
        ++loops_;
        stmt.body = parse_until({"else", "endfor"});
        --loops_;
        if (stream_.skip_name("else")) {
            stmt.other = parse_body("endfor");
            return stmt;
        }
        stream_.expect_name("endfor");
        end_tag();
        return stmt;
    }

    Target parse_single_target(bool with_namespace) {
        if (stream_.skip_operator("(")) {
            Target target = parse_target(with_namespace);
            stream_.expect_operator(")");
            return target;
        }
        Target target;
        target.name = stream_.expect_any_name();
        if (with_namespace && stream_.skip_operator("."))
            target.attribute = stream_.expect_any_name();
        return target;
    }

    Target parse_target(bool with_namespace) {
        if (++blocks_ > kMaxBlocks)
            throw TemplateError("a target is nested too deeply", stream_.current().line);
        Target first = parse_single_target(with_namespace);
        --blocks_;
        if (!stream_.is_operator(",")) return first;
        Target target;
        target.parts.push_back(std::move(first));
        while (stream_.skip_operator(",") &&
               (stream_.current().kind == TokenKind::kName || stream_.is_operator("(")) &&
               !stream_.is_name("in")) {
            target.parts.push_back(parse_single_target(with_namespace));
        }
        return target;
    }

    Stmt parse_set(int line) {
        Stmt stmt = statement(StmtKind::kSet, line);
        stmt.target = parse_target(true);
        if (stream_.skip_operator("=")) {
            stmt.expr = expressions_.parse_tuple(true);
            end_tag();
            return stmt;
        }
        stmt.kind = StmtKind::kSetBlock;
        stmt.expr = expressions_.parse_filters(nullptr);
        stmt.body = parse_body("endset");
        return stmt;
    }

    Stmt parse_macro(int line) {
        Stmt stmt = statement(StmtKind::kMacro, line);
        stmt.text = stream_.expect_any_name();
        stream_.expect_operator("(");
        while (!stream_.is_operator(")")) {
            if (!stmt.parameters.empty()) stream_.expect_operator(",");
            if (stream_.is_operator(")")) break;
            Parameter parameter{stream_.expect_any_name(), nullptr};
            if (stream_.skip_operator("=")) parameter.otherwise = expressions_.parse_expression();
            stmt.parameters.push_back(std::move(parameter));
        }
        stream_.expect_operator(")");
        const int loops = std::exchange(loops_, 0);
        stmt.body = parse_body("endmacro");
        loops_ = loops;
        return stmt;
    }

    Stmt parse_with(int line) {
        Stmt stmt = statement(StmtKind::kWith, line);
        while (stream_.current().kind != TokenKind::kTagEnd) {
            if (!stmt.parameters.empty()) stream_.expect_operator(",");
            Parameter parameter{stream_.expect_any_name(), nullptr};
            stream_.expect_operator("=");
            parameter.otherwise = expressions_.parse_expression();
            stmt.parameters.push_back(std::move(parameter));
        }
        stmt.body = parse_body("endwith");
        return stmt;
    }

    // {% filter name(...)|name %}: the same as a pipe from nothing.
    Stmt parse_filter_block(int line) {
        Stmt stmt = statement(StmtKind::kFilter, line);
        stream_.replace_with_operator("|");
        stmt.expr = expressions_.parse_filters(nullptr);
        stmt.body = parse_body("endfilter");
        return stmt;
    }

    TokenStream stream_;
    ExpressionParser expressions_;
    int blocks_ = 0;
    int loops_ = 0;
};

}  // namespace

void TokenStream::replace_with_operator(std::string text) {
    tokens_[at_].kind = TokenKind::kOperator;
    tokens_[at_].text = std::move(text);
}

std::vector<Stmt> parse_template(const std::string& source) {
    return StatementParser(tokenize(source)).run();
}

}  // namespace cleave::runtime::jinja
