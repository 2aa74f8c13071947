// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/utf8.h"

#include <utf8proc.h>

#include <algorithm>

namespace cleave::runtime {

namespace {

struct LeadByte {
    size_t size;            // of the whole character; 0: never starts one
    unsigned char low;      // range of the second byte, which excludes overlong forms,
    unsigned char high;     // surrogates and code points above U+10FFFF
    unsigned char payload;  // the lead byte's bits of the code point
};

LeadByte classify(unsigned char byte) {
    if (byte < 0x80) return {1, 0, 0, byte};
    if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF, static_cast<unsigned char>(byte & 31)};
    const auto three = static_cast<unsigned char>(byte & 15);
    if (byte == 0xE0) return {3, 0xA0, 0xBF, three};
    if (byte == 0xED) return {3, 0x80, 0x9F, three};
    if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF, three};
    const auto four = static_cast<unsigned char>(byte & 7);
    if (byte == 0xF0) return {4, 0x90, 0xBF, four};
    if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF, four};
    if (byte == 0xF4) return {4, 0x80, 0x8F, four};
    return {0, 0, 0, 0};
}

}  // namespace

Utf8Char next_char(std::string_view text, size_t at) {
    const LeadByte lead = classify(static_cast<unsigned char>(text[at]));
    if (lead.size == 0) return {kReplacementChar, 1, false, false};
    char32_t code = lead.payload;
    for (size_t i = 1; i < lead.size; ++i) {
        if (at + i >= text.size()) return {kReplacementChar, i, false, true};
        const auto byte = static_cast<unsigned char>(text[at + i]);
        const unsigned char low = i == 1 ? lead.low : 0x80;
        const unsigned char high = i == 1 ? lead.high : 0xBF;
        if (byte < low || byte > high) return {kReplacementChar, i, false, false};
        code = (code << 6) | (byte & 63);
    }
    return {code, lead.size, true, false};
}

size_t previous_char(std::string_view text, size_t end) {
    size_t at = end - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
}

void append_utf8(std::string& out, char32_t code) {
    const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xC0 | (code >> 6));
        put(0x80 | (code & 63));
    } else if (code < 0x10000) {
        put(0xE0 | (code >> 12));
        put(0x80 | ((code >> 6) & 63));
        put(0x80 | (code & 63));
    } else {
        put(0xF0 | (code >> 18));
        put(0x80 | ((code >> 12) & 63));
        put(0x80 | ((code >> 6) & 63));
        put(0x80 | (code & 63));
    }
}

size_t valid_prefix(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        const Utf8Char c = next_char(text, at);
        if (!c.valid) return at;
        at += c.size;
    }
    return at;
}

std::string replace_invalid_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const size_t good = valid_prefix(text);
        out.append(text.substr(0, good));
        text.remove_prefix(good);
        if (text.empty()) break;
        append_utf8(out, kReplacementChar);
        text.remove_prefix(next_char(text, 0).size);
    }
    return out;
}

size_t incomplete_tail(std::string_view text) {
    const size_t window = std::min<size_t>(3, text.size());
    for (size_t back = window; back >= 1; --back) {
        const Utf8Char c = next_char(text, text.size() - back);
        if (c.cut && c.size == back) return back;
    }
    return 0;
}

bool is_whitespace(char32_t code) {
    return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_word_char(char32_t code) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC: return true;
        default: return false;
    }
}

}  // namespace cleave::runtime
