// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "runtime/text/jinja/parser.h"

namespace cleave::runtime::jinja {

namespace {

// Deep trees are walked by recursion; real templates stay below 30.
constexpr int kMaxDepth = 400;

ExprPtr make(ExprKind kind, int line, std::string name = "") {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    expr->name = std::move(name);
    return expr;
}

void add_child(Expr& parent, ExprPtr child) {
    if (child) parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxDepth)
        throw TemplateError("an expression is nested too deeply", parent.line);
    parent.children.push_back(std::move(child));
}

template <class... Children>
ExprPtr make_with(ExprKind kind, int line, std::string name, Children... children) {
    ExprPtr expr = make(kind, line, std::move(name));
    (add_child(*expr, std::move(children)), ...);
    return expr;
}

ExprPtr make_constant(Value value, int line) {
    ExprPtr expr = make(ExprKind::kConstant, line);
    expr->constant = std::move(value);
    return expr;
}

bool is_one_of(const Token& token, std::initializer_list<std::string_view> operators) {
    return token.kind == TokenKind::kOperator &&
           std::find(operators.begin(), operators.end(), token.text) != operators.end();
}

}  // namespace

// Counts how deep the parser's own recursion is.
class ExpressionParser::Nesting {
public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) {
        if (++parser_.nesting_ > kMaxDepth) {
            throw TemplateError("an expression is nested too deeply",
                                parser_.stream_.current().line);
        }
    }
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

private:
    ExpressionParser& parser_;
};

ExprPtr ExpressionParser::parse_expression(bool with_conditional) {
    const Nesting nesting(*this);
    ExprPtr value = parse_or();
    while (with_conditional && stream_.is_name("if")) {
        const int line = stream_.next().line;
        ExprPtr condition = parse_or();
        ExprPtr otherwise = stream_.skip_name("else") ? parse_expression() : nullptr;
        value = make_with(ExprKind::kConditional, line, "", std::move(condition), std::move(value),
                          std::move(otherwise));
    }
    return value;
}

ExprPtr ExpressionParser::parse_or() {
    ExprPtr left = parse_and();
    while (stream_.is_name("or")) {
        const int line = stream_.next().line;
        left = make_with(ExprKind::kOr, line, "", std::move(left), parse_and());
    }
    return left;
}

ExprPtr ExpressionParser::parse_and() {
    ExprPtr left = parse_not();
    while (stream_.is_name("and")) {
        const int line = stream_.next().line;
        left = make_with(ExprKind::kAnd, line, "", std::move(left), parse_not());
    }
    return left;
}

ExprPtr ExpressionParser::parse_not() {
    const Nesting nesting(*this);
    if (!stream_.is_name("not")) return parse_compare();
    const int line = stream_.next().line;
    return make_with(ExprKind::kNot, line, "", parse_not());
}

ExprPtr ExpressionParser::parse_compare() {
    ExprPtr first = parse_sum();
    ExprPtr compare;
    for (;;) {
        std::string op;
        if (is_one_of(stream_.current(), {"==", "!=", "<", ">", "<=", ">="})) {
            op = stream_.next().text;
        } else if (stream_.skip_name("in")) {
            op = "in";
        } else if (stream_.is_name("not") && stream_.ahead().kind == TokenKind::kName &&
                   stream_.ahead().text == "in") {
            stream_.next();
            stream_.next();
            op = "not in";
        } else {
            return compare ? std::move(compare) : std::move(first);
        }
        if (!compare)
            compare = make_with(ExprKind::kCompare, stream_.current().line, "", std::move(first));
        compare->operators.push_back(op);
        add_child(*compare, parse_sum());
    }
}

ExprPtr ExpressionParser::parse_sum() {
    ExprPtr left = parse_concat();
    while (is_one_of(stream_.current(), {"+", "-"})) {
        const Token op = stream_.next();
        left = make_with(ExprKind::kBinary, op.line, op.text, std::move(left), parse_concat());
    }
    return left;
}

ExprPtr ExpressionParser::parse_concat() {
    ExprPtr first = parse_product();
    if (!stream_.is_operator("~")) return first;
    ExprPtr concat = make_with(ExprKind::kConcat, stream_.current().line, "", std::move(first));
    while (stream_.skip_operator("~")) add_child(*concat, parse_product());
    return concat;
}

ExprPtr ExpressionParser::parse_product() {
    ExprPtr left = parse_power();
    while (is_one_of(stream_.current(), {"*", "/", "//", "%"})) {
        const Token op = stream_.next();
        left = make_with(ExprKind::kBinary, op.line, op.text, std::move(left), parse_power());
    }
    return left;
}

ExprPtr ExpressionParser::parse_power() {
    ExprPtr left = parse_unary();
    while (stream_.is_operator("**")) {
        const int line = stream_.next().line;
        left = make_with(ExprKind::kBinary, line, "**", std::move(left), parse_unary());
    }
    return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
    const Nesting nesting(*this);
    ExprPtr value;
    if (is_one_of(stream_.current(), {"-", "+"})) {
        const Token op = stream_.next();
        const ExprKind kind = op.text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
        value = make_with(kind, op.line, "", parse_unary(false));
    } else {
        value = parse_primary();
    }
    value = parse_postfix(std::move(value));
    while (with_filter) {
        if (stream_.is_operator("|")) {
            value = parse_filters(std::move(value));
        } else if (stream_.is_name("is")) {
            value = parse_test(std::move(value));
        } else if (stream_.is_operator("(")) {
            value = parse_postfix(std::move(value));
        } else {
            break;
        }
    }
    return value;
}

ExprPtr ExpressionParser::parse_constant() {
    const Token token = stream_.next();
    if (token.kind == TokenKind::kString) {
        std::string text = token.text;
        while (stream_.current().kind == TokenKind::kString) text += stream_.next().text;
        return make_constant(std::move(text), token.line);
    }
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    if (token.kind == TokenKind::kInteger) {
        int64_t value = 0;
        if (std::from_chars(begin, end, value).ec != std::errc()) {
            throw TemplateError(fmt::format("the number {} is too large", token.text), token.line);
        }
        return make_constant(value, token.line);
    }
    double value = 0;
    std::from_chars(begin, end, value);
    return make_constant(value, token.line);
}

ExprPtr ExpressionParser::parse_primary() {
    const Token& token = stream_.current();
    switch (token.kind) {
        case TokenKind::kString:
        case TokenKind::kInteger:
        case TokenKind::kFloat: return parse_constant();
        case TokenKind::kName: {
            const Token name = stream_.next();
            if (name.text == "true" || name.text == "True") return make_constant(true, name.line);
            if (name.text == "false" || name.text == "False")
                return make_constant(false, name.line);
            if (name.text == "none" || name.text == "None")
                return make_constant(Value(), name.line);
            return make(ExprKind::kName, name.line, name.text);
        }
        default: break;
    }
    if (stream_.skip_operator("(")) {
        ExprPtr value =
            stream_.is_operator(")") ? make(ExprKind::kTuple, token.line) : parse_tuple(true);
        stream_.expect_operator(")");
        return value;
    }
    if (stream_.is_operator("[")) return parse_list();
    if (stream_.is_operator("{")) return parse_dict();
    stream_.fail_unexpected("an expression");
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end) {
    ExprPtr first = parse_expression(with_conditional);
    if (!stream_.is_operator(",")) return first;
    const int line = first->line;
    ExprPtr tuple = make_with(ExprKind::kTuple, line, "", std::move(first));
    while (stream_.skip_operator(",")) {
        const TokenKind kind = stream_.current().kind;
        if (kind == TokenKind::kTagEnd || kind == TokenKind::kOutputEnd || stream_.is_operator(")"))
            break;
        if (!end.empty() && stream_.is_name(end)) break;
        add_child(*tuple, parse_expression(with_conditional));
    }
    return tuple;
}

ExprPtr ExpressionParser::parse_list() {
    ExprPtr list = make(ExprKind::kList, stream_.next().line);
    while (!stream_.is_operator("]")) {
        if (!list->children.empty()) stream_.expect_operator(",");
        if (stream_.is_operator("]")) break;
        add_child(*list, parse_expression());
    }
    stream_.expect_operator("]");
    return list;
}

ExprPtr ExpressionParser::parse_dict() {
    ExprPtr dict = make(ExprKind::kDict, stream_.next().line);
    while (!stream_.is_operator("}")) {
        if (!dict->children.empty()) stream_.expect_operator(",");
        if (stream_.is_operator("}")) break;
        add_child(*dict, parse_expression());
        stream_.expect_operator(":");
        add_child(*dict, parse_expression());
    }
    stream_.expect_operator("}");
    return dict;
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr value) {
    for (;;) {
        if (stream_.skip_operator(".")) {
            const Token token = stream_.next();
            if (token.kind == TokenKind::kInteger) {
                ExprPtr index =
                    make_constant(Value(int64_t{std::atoll(token.text.c_str())}), token.line);
                value =
                    make_with(ExprKind::kItem, token.line, "", std::move(value), std::move(index));
            } else if (token.kind == TokenKind::kName) {
                value = make_with(ExprKind::kAttribute, token.line, token.text, std::move(value));
            } else {
                throw TemplateError("expected a name after '.'", token.line);
            }
        } else if (stream_.is_operator("[")) {
            value = parse_subscript(std::move(value));
        } else if (stream_.is_operator("(")) {
            ExprPtr call = make_with(ExprKind::kCall, stream_.current().line, "", std::move(value));
            parse_arguments(*call);
            value = std::move(call);
        } else {
            return value;
        }
    }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr value) {
    const int line = stream_.next().line;
    ExprPtr bounds[3];
    int colons = 0;
    if (!stream_.is_operator(":")) bounds[0] = parse_tuple(true);
    while (colons < 2 && stream_.skip_operator(":")) {
        ++colons;
        if (!stream_.is_operator(":") && !stream_.is_operator("]"))
            bounds[colons] = parse_expression();
    }
    stream_.expect_operator("]");
    if (colons == 0)
        return make_with(ExprKind::kItem, line, "", std::move(value), std::move(bounds[0]));
    return make_with(ExprKind::kSlice, line, "", std::move(value), std::move(bounds[0]),
                     std::move(bounds[1]), std::move(bounds[2]));
}

void ExpressionParser::parse_arguments(Expr& call) {
    stream_.expect_operator("(");
    bool first = true;
    while (!stream_.is_operator(")")) {
        if (!first) stream_.expect_operator(",");
        first = false;
        if (stream_.is_operator(")")) break;
        if (is_one_of(stream_.current(), {"*", "**"})) {
            throw TemplateError("unpacking arguments with '*' is not supported",
                                stream_.current().line);
        }
        const Token& after = stream_.ahead();
        if (stream_.current().kind == TokenKind::kName && is_one_of(after, {"="})) {
            std::string name = stream_.next().text;
            stream_.next();
            ExprPtr value = parse_expression();
            call.depth = std::max(call.depth, value->depth + 1);
            call.named.emplace_back(std::move(name), std::move(value));
        } else {
            if (!call.named.empty()) stream_.fail_unexpected("a named argument");
            add_child(call, parse_expression());
        }
    }
    stream_.expect_operator(")");
}

ExprPtr ExpressionParser::parse_filters(ExprPtr value) {
    while (stream_.skip_operator("|")) {
        const int line = stream_.current().line;
        ExprPtr filter =
            make_with(ExprKind::kFilter, line, stream_.expect_any_name(), std::move(value));
        if (stream_.is_operator("(")) parse_arguments(*filter);
        value = std::move(filter);
    }
    return value;
}

ExprPtr ExpressionParser::parse_test(ExprPtr value) {
    const int line = stream_.next().line;
    const bool negated = stream_.skip_name("not");
    ExprPtr test = make_with(ExprKind::kTest, line, stream_.expect_any_name(), std::move(value));
    const Token& token = stream_.current();
    const bool keyword = stream_.is_name("else") || stream_.is_name("or") ||
                         stream_.is_name("and") || stream_.is_name("is") || stream_.is_name("if") ||
                         stream_.is_name("in") || stream_.is_name("not");
    if (stream_.is_operator("(")) {
        parse_arguments(*test);
    } else if ((token.kind == TokenKind::kName && !keyword) || token.kind == TokenKind::kString ||
               token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat ||
               is_one_of(token, {"[", "{"})) {
        add_child(*test, parse_postfix(parse_primary()));
    }
    if (!negated) return test;
    return make_with(ExprKind::kNot, line, "", std::move(test));
}

}  // namespace cleave::runtime::jinja
