// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/text/regex.h"
#include "runtime/text/token_decoder.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime {

namespace {

// Of one replacement, which is made whole before it is looked at; and of all that becomes of a
// text: a file of a few kilobytes would make tokens without end of a short prompt.
constexpr size_t kMostNormalBytes = size_t{64} << 20;
size_t most_of_all(size_t bytes) {
    return std::min(kMostNormalBytes, (size_t{1} << 20) + 64 * bytes);
}

Normalizer build_prepend(const JsonView& json) {
    return [prefix = json.at("prepend").as_string()](std::string& text) {
        if (!text.empty()) text.insert(0, prefix);
    };
}

Normalizer build_replace(const JsonView& json) {
    const JsonView pattern = json.at("pattern");
    const std::string content = json.at("content").as_string();
    if (pattern.has("String")) {
        return [from = pattern.at("String").as_string(), content](std::string& text) {
            replace_all(text, from, content, kMostNormalBytes);
        };
    }
    const Regex regex(pattern.at("Regex").as_string(), pattern.where());
    return [regex, content](std::string& text) {
        std::string out;
        size_t at = 0;
        for (const TextRange match : regex.find_all(text)) {
            out.append(text, at, match.begin - at).append(content);
            at = match.end;
            check_replaced(out.size(), kMostNormalBytes);
        }
        text = out.append(text, at);
    };
}

// One of Unicode's four normalisation forms.
Normalizer unicode_form(unsigned options) {
    return [options](std::string& text) {
        utf8proc_uint8_t* raw = nullptr;
        const utf8proc_ssize_t size =
            utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(text.size()), &raw,
                         static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
        const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(raw, std::free);
        if (size < 0) throw UserError("Unicode normalisation failed: {}", utf8proc_errmsg(size));
        text.assign(reinterpret_cast<const char*>(raw), static_cast<size_t>(size));
    };
}

Normalizer build_lowercase(const JsonView&) {
    return [](std::string& text) {
        std::string out;
        for (size_t at = 0; at < text.size();) {
            const Utf8Char c = next_char(text, at);
            at += c.size;
            // The one character whose lower case is two characters (Unicode's SpecialCasing.txt).
            if (c.code == 0x130) {
                out += "i\xCC\x87";
                continue;
            }
            const auto code = static_cast<utf8proc_int32_t>(c.code);
            append_utf8(out, static_cast<char32_t>(utf8proc_tolower(code)));
        }
        text = std::move(out);
    };
}

Normalizer build_strip(const JsonView& json) {
    const bool left = json.bool_or("strip_left", true);
    const bool right = json.bool_or("strip_right", true);
    return [left, right](std::string& text) {
        size_t begin = 0;
        size_t end = text.size();
        while (left && begin < end) {
            const Utf8Char c = next_char(text, begin);
            if (!is_whitespace(c.code)) break;
            begin += c.size;
        }
        while (right && begin < end) {
            const size_t last = previous_char(text, end);
            if (!is_whitespace(next_char(text, last).code)) break;
            end = last;
        }
        text = text.substr(begin, end - begin);
    };
}

Normalizer build_normalizers(const JsonView& json) {
    std::vector<Normalizer> steps;
    const JsonView list = json.at("normalizers");
    for (size_t i = 0; i < list.size(); ++i) steps.push_back(read_normalizer(list.at(i)));
    return [steps = std::move(steps)](std::string& text) {
        for (const Normalizer& step : steps) step(text);
    };
}

Normalizer build_nfc(const JsonView&) { return unicode_form(UTF8PROC_COMPOSE); }
Normalizer build_nfd(const JsonView&) { return unicode_form(UTF8PROC_DECOMPOSE); }
Normalizer build_nfkc(const JsonView&) { return unicode_form(UTF8PROC_COMPOSE | UTF8PROC_COMPAT); }
Normalizer build_nfkd(const JsonView&) {
    return unicode_form(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

struct NormalizerEntry {
    std::string_view type;
    Normalizer (*build)(const JsonView&);
};

constexpr NormalizerEntry kNormalizers[] = {
    {"Prepend", build_prepend}, {"Replace", build_replace},     {"NFC", build_nfc},
    {"NFD", build_nfd},         {"NFKC", build_nfkc},           {"NFKD", build_nfkd},
    {"Strip", build_strip},     {"Lowercase", build_lowercase}, {"Sequence", build_normalizers},
};

}  // namespace

Normalizer read_normalizer(const JsonView& json) {
    if (json.raw().is_null()) return [](std::string&) {};
    const std::string& type = json.type();
    std::string supported;
    for (const NormalizerEntry& entry : kNormalizers) {
        if (entry.type == type)
            return [normalize = entry.build(json)](std::string& text) {
                const size_t most = most_of_all(text.size());
                normalize(text);
                check_replaced(text.size(), most);
            };
        supported.append(supported.empty() ? "" : ", ").append(entry.type);
    }
    json.fail("normalizer '" + type + "' is not supported (supported: " + supported + ")");
}

}  // namespace cleave::runtime
