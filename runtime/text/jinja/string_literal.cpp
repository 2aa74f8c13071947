// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/string_literal.h"

#include <fmt/format.h>

#include <charconv>

#include "runtime/text/jinja/value.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime::jinja {

namespace {

// Digits of `base` from `text`, all of them.
uint32_t parse_code(std::string_view text, int base, std::string_view escape, int line) {
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code, base);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() ||
        code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        throw TemplateError(fmt::format("the escape '\\{}' in a string is no character", escape),
                            line);
    }
    return code;
}

size_t hex_digits(char letter) {
    if (letter == 'x') return 2;
    if (letter == 'u') return 4;
    return letter == 'U' ? 8 : 0;
}

}  // namespace

std::string unescape(std::string_view text, int line) {
    constexpr std::string_view kLetters = "ntrabfv\\'\"\n";
    constexpr const char* kValues[] = {"\n", "\t", "\r", "\a", "\b", "\f",
                                       "\v", "\\", "'",  "\"", ""};
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 1 >= text.size()) {
            out += text[i];
            continue;
        }
        const char letter = text[++i];
        if (const size_t known = kLetters.find(letter); known != std::string_view::npos) {
            out += kValues[known];
        } else if (const size_t digits = hex_digits(letter); digits > 0) {
            const std::string_view code = text.substr(i + 1, digits);
            const bool whole = code.size() == digits;
            append_utf8(out, parse_code(whole ? code : "", 16, text.substr(i, 1), line));
            i += digits;
        } else if (letter >= '0' && letter <= '7') {
            size_t count = 1;
            while (count < 3 && i + count < text.size() && text[i + count] >= '0' &&
                   text[i + count] <= '7')
                ++count;
            append_utf8(out, parse_code(text.substr(i, count), 8, text.substr(i, count), line));
            i += count - 1;
        } else {
            out += {'\\', letter};
        }
    }
    return out;
}

}  // namespace cleave::runtime::jinja
