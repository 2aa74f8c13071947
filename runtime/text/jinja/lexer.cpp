// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "runtime/text/jinja/string_literal.h"
#include "runtime/text/jinja/strings.h"
#include "runtime/text/jinja/value.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime::jinja {

namespace {

std::string normalize_newlines(const std::string& source) {
    std::string out;
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') {
            out += source[i];
        } else if (i + 1 >= source.size() || source[i + 1] != '\n') {
            out += '\n';
        }
    }
    if (out.ends_with('\n')) out.pop_back();
    return out;
}

bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
public:
    explicit Lexer(const std::string& source) : source_(normalize_newlines(source)) {}

    std::vector<Token> run() {
        while (at_ < source_.size()) lex_text_and_tag();
        push(TokenKind::kEnd, "");
        return std::move(tokens_);
    }

private:
    static constexpr std::string_view kSpaces = " \t\n\r\f\v";

    std::string_view rest() const { return std::string_view(source_).substr(at_); }
    bool starts(std::string_view text) const { return rest().starts_with(text); }
    [[noreturn]] void fail(const std::string& message) const {
        throw TemplateError(message, line_);
    }
    void push(TokenKind kind, std::string text) {
        tokens_.push_back({kind, std::move(text), line_});
    }

    void advance(size_t count) {
        line_ += static_cast<int>(
            std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                       source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
        at_ += count;
    }

    void skip_spaces() {
        while (at_ < source_.size()) {
            const Utf8Char c = next_char(source_, at_);
            if (!is_python_space(c.code)) break;
            advance(c.size);
        }
    }

    // The next place where "{{", "{%" or "{#" begins.
    size_t find_tag() const {
        for (size_t i = source_.find('{', at_); i != std::string::npos;
             i = source_.find('{', i + 1)) {
            if (i + 1 < source_.size() &&
                std::string_view("{%#").find(source_[i + 1]) != std::string_view::npos) {
                return i;
            }
        }
        return source_.size();
    }

    // Text before a tag, shortened as the tag's sign and lstrip_blocks say.
    void push_text(size_t end, char sign, bool may_lstrip) {
        std::string text = source_.substr(at_, end - at_);
        if (sign == '-') {
            text = strip(text, std::nullopt, false, true);
        } else if (sign != '+' && may_lstrip) {
            const size_t newline = text.rfind('\n');
            const size_t line_begin = newline == std::string::npos ? 0 : newline + 1;
            const bool whole_line = newline != std::string::npos || line_starting_;
            if (whole_line && strip(text.substr(line_begin), std::nullopt, true, false).empty()) {
                text.resize(line_begin);
            }
        }
        if (!text.empty()) push(TokenKind::kText, text);
        advance(end - at_);
    }

    char sign_at(size_t index) const {
        if (index >= source_.size()) return ' ';
        return source_[index] == '-' || source_[index] == '+' ? source_[index] : ' ';
    }

    // After the end of a tag: "-" takes white space along, a block or comment takes one newline.
    void after_tag(bool strips, bool trims) {
        const size_t before = at_;
        if (strips) {
            skip_spaces();
        } else if (trims && starts("\n")) {
            advance(1);
        }
        line_starting_ = at_ > before && source_[at_ - 1] == '\n';
    }

    void lex_text_and_tag() {
        const size_t tag = find_tag();
        if (tag == source_.size()) {
            push(TokenKind::kText, source_.substr(at_));
            advance(source_.size() - at_);
            return;
        }
        const char kind = source_[tag + 1];
        const char sign = sign_at(tag + 2);
        push_text(tag, sign, kind != '{');
        const size_t begin_size = sign == ' ' ? 2 : 3;
        if (kind == '#') return lex_comment(begin_size);
        if (kind == '%' && lex_raw(begin_size)) return;
        push(kind == '{' ? TokenKind::kOutputBegin : TokenKind::kTagBegin, "");
        advance(begin_size);
        lex_inside(kind == '{' ? "}}" : "%}", kind == '{');
    }

    void lex_comment(size_t begin_size) {
        const size_t end = source_.find("#}", at_ + 2);
        if (end == std::string::npos) fail("the comment '{#' has no end '#}'");
        const bool strips = end >= at_ + begin_size && end > 0 && source_[end - 1] == '-';
        const bool keeps = end >= at_ + begin_size && source_[end - 1] == '+';
        advance(end + 2 - at_);
        after_tag(strips, !keeps);
    }

    // The size of "name -%}" at `index` after optional spaces, or 0; `sign`: what stood before
    // "%}".
    size_t match_word_tag(size_t index, std::string_view word, char& sign) const {
        const size_t word_begin = source_.find_first_not_of(kSpaces, index);
        if (word_begin == std::string::npos || source_.compare(word_begin, word.size(), word) != 0)
            return 0;
        size_t end = source_.find_first_not_of(kSpaces, word_begin + word.size());
        if (end == std::string::npos) return 0;
        sign = sign_at(end);
        if (sign != ' ') ++end;
        return source_.compare(end, 2, "%}") == 0 ? end + 2 - index : 0;
    }

    // {% raw %} ... {% endraw %}: the inside is text.
    bool lex_raw(size_t begin_size) {
        char sign = ' ';
        const size_t size = match_word_tag(at_ + begin_size, "raw", sign);
        if (size == 0) return false;
        advance(begin_size + size);
        after_tag(sign == '-', false);
        for (size_t i = source_.find("{%", at_); i != std::string::npos;
             i = source_.find("{%", i + 1)) {
            const char begin_sign = sign_at(i + 2);
            const size_t begin = i + (begin_sign == ' ' ? 2 : 3);
            const size_t end = match_word_tag(begin, "endraw", sign);
            if (end == 0) continue;
            push_text(i, begin_sign, true);
            advance(begin + end - at_);
            after_tag(sign == '-', sign != '+');
            return true;
        }
        fail("'{% raw %}' has no '{% endraw %}'");
    }

    // The tokens of one tag, up to and including its end.
    void lex_inside(std::string_view end, bool is_output) {
        const int begin_line = line_;
        brackets_.clear();
        for (;;) {
            skip_spaces();
            if (at_ >= source_.size()) {
                throw TemplateError(fmt::format("a tag that begins here has no end '{}'", end),
                                    begin_line);
            }
            const char sign = sign_at(at_);
            const size_t skip = sign == ' ' ? 0 : 1;
            if (brackets_.empty() && rest().substr(skip).starts_with(end)) {
                push(is_output ? TokenKind::kOutputEnd : TokenKind::kTagEnd, "");
                advance(skip + 2);
                after_tag(sign == '-', !is_output && sign != '+');
                return;
            }
            lex_token();
        }
    }

    void lex_token() {
        const char c = source_[at_];
        if (is_name_start(c)) {
            size_t end = at_;
            while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end])))
                ++end;
            take(TokenKind::kName, end - at_);
        } else if (is_digit(c)) {
            lex_number();
        } else if (c == '"' || c == '\'') {
            lex_string(c);
        } else {
            lex_operator();
        }
    }

    void take(TokenKind kind, size_t size) {
        push(kind, source_.substr(at_, size));
        advance(size);
    }

    void lex_number() {
        size_t end = at_;
        const auto digits = [&] {
            while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
        };
        const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
        digits();
        bool is_float = false;
        const bool after_dot = !tokens_.empty() && tokens_.back().text == ".";
        if (!after_dot && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
            is_float = true;
            ++end;
            digits();
        }
        if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
            const size_t exponent = end + (sign_at(end + 1) == ' ' ? 1 : 2);
            if (digit_at(exponent)) {
                is_float = true;
                end = exponent;
                digits();
            }
        }
        std::string text = source_.substr(at_, end - at_);
        std::erase(text, '_');
        push(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
        advance(end - at_);
    }

    void lex_string(char quote) {
        size_t end = at_ + 1;
        while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
        if (end >= source_.size()) fail("a string that begins here has no end");
        push(TokenKind::kString,
             unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
        advance(end + 1 - at_);
    }

    void lex_operator() {
        constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", "<=", ">="};
        for (const std::string_view op : kTwo) {
            if (starts(op)) return take(TokenKind::kOperator, 2);
        }
        const char c = source_[at_];
        if (std::string_view("+-*/%~()[]{}<>=.:|,;").find(c) == std::string_view::npos) {
            fail(fmt::format("unexpected character '{}'",
                             rest().substr(0, next_char(source_, at_).size)));
        }
        track_bracket(c);
        take(TokenKind::kOperator, 1);
    }

    void track_bracket(char c) {
        constexpr std::string_view kOpen = "([{";
        constexpr std::string_view kClose = ")]}";
        if (kOpen.find(c) != std::string_view::npos) brackets_ += kClose[kOpen.find(c)];
        if (kClose.find(c) == std::string_view::npos) return;
        if (brackets_.empty() || brackets_.back() != c) fail(fmt::format("unexpected '{}'", c));
        brackets_.pop_back();
    }

    std::string source_;
    size_t at_ = 0;
    int line_ = 1;
    bool line_starting_ = true;  // the text at at_ begins a line
    std::string brackets_;       // closing brackets that are due
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const std::string& source) { return Lexer(source).run(); }

}  // namespace cleave::runtime::jinja
