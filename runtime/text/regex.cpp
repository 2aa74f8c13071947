// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <utility>

#include "runtime/base/errors.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime {

namespace {

std::string message_of(int error) {
    PCRE2_UCHAR buffer[256];
    pcre2_get_error_message(error, buffer, sizeof buffer);
    return reinterpret_cast<const char*>(buffer);
}

// What \w is to Oniguruma (UTS 18, annex C); PCRE2's leaves out marks and connectors.
constexpr const char* kWordClasses = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})";

// The escapes that mean something else to PCRE2. `in_class`: inside [...].
std::string translate_escape(char letter, bool in_class, const std::string& pattern,
                             const std::string& where) {
    switch (letter) {
        case 's': return R"(\p{White_Space})";  // PCRE2's \s adds U+180E
        case 'S': return R"(\P{White_Space})";
        case 'w': return in_class ? kWordClasses : fmt::format("[{}]", kWordClasses);
        case 'h': return in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
        case 'W':
            if (!in_class) return fmt::format("[^{}]", kWordClasses);
            break;
        case 'H':
            if (!in_class) return "[^0-9a-fA-F]";
            break;
        default: return {'\\', letter};
    }
    throw UserError(
        "{}: regular expression '{}' uses \\{} inside a class, which is not supported; "
        "write the class out",
        where, pattern, letter);
}

// From Oniguruma's syntax to PCRE2's.
std::string translate(const std::string& pattern, const std::string& where) {
    std::string out;
    bool in_class = false;
    bool class_is_empty = false;  // a ']' now would be a character of the class
    for (size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        const bool first_in_class = std::exchange(class_is_empty, false);
        if (c == '\\' && i + 1 < pattern.size()) {
            out += translate_escape(pattern[++i], in_class, pattern, where);
            continue;
        }
        out += c;
        if (!in_class) {
            in_class = class_is_empty = c == '[';
        } else if (c == '^' && first_in_class && pattern[i - 1] == '[') {
            class_is_empty = true;
        } else if (c == ']') {
            in_class = first_in_class;
        } else if (c == '[' && pattern.compare(i, 2, "[:") == 0) {
            const size_t end = pattern.find(":]", i);
            if (end == std::string::npos) continue;
            out.append(pattern, i + 1, end + 1 - i);
            i = end + 1;
        } else if (c == '[' || pattern.compare(i, 2, "&&") == 0) {
            throw UserError(
                "{}: regular expression '{}' uses a class inside a class or '&&', "
                "which is not supported; write the class out",
                where, pattern);
        }
    }
    return out;
}

const pcre2_code* as_code(const std::shared_ptr<void>& code) {
    return static_cast<const pcre2_code*>(code.get());
}

}  // namespace

Regex::Regex(std::string pattern, const std::string& where) : pattern_(std::move(pattern)) {
    const std::string translated = translate(pattern_, where);
    int error = 0;
    PCRE2_SIZE offset = 0;
    // MULTILINE: in Oniguruma's default syntax ^ and $ always match at line ends.
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, nullptr);
    if (code == nullptr) {
        throw UserError("{}: regular expression '{}' is not supported at offset {}: {}", where,
                        translated, offset, message_of(error));
    }
    code_ =
        std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
    // A failure leaves the interpreter, which gives the same matches.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

std::vector<TextRange> Regex::find_all(std::string_view text) const {
    const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
        pcre2_match_data_create_from_pattern(as_code(code_), nullptr), pcre2_match_data_free);
    std::vector<TextRange> matches;
    size_t at = 0;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    while (at <= text.size()) {
        const int rc = pcre2_match(as_code(code_), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), at, options, data.get(), nullptr);
        if (rc == PCRE2_ERROR_NOMATCH) break;
        if (rc < 0) {
            throw UserError("regular expression '{}' gave up at byte {} of a text of {} bytes: {}",
                            pattern_, at, text.size(), message_of(rc));
        }
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
        matches.push_back({range[0], range[1]});
        at = range[1];
        if (range[0] == range[1]) {
            if (at >= text.size()) break;
            at += next_char(text, at).size;
        }
    }
    return matches;
}

}  // namespace cleave::runtime
