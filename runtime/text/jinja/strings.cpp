// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/jinja/strings.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "runtime/text/jinja/budget.h"
#include "runtime/text/jinja/value.h"
#include "runtime/text/utf8.h"

namespace cleave::runtime::jinja {

namespace {

void spend_reading(std::string_view text) { spend(1 + text.size() / kBytesOfReading); }

void add_part(std::vector<std::string>& parts, std::string_view part) {
    if (parts.size() == kMaxItems) throw TemplateError("a text is cut into too many parts");
    spend(kItem + part.size() / kBytesOfWork);
    parts.emplace_back(part);
}

std::string reversed(std::string_view text) {
    spend(text.size() / kBytesOfWork);
    return {text.rbegin(), text.rend()};
}

std::string map_characters(std::string_view text, const std::function<char32_t(char32_t)>& map) {
    spend_reading(text);
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const Utf8Char c = next_char(text, at);
        append_utf8(out, map(c.code));
        at += c.size;
    }
    return out;
}

char32_t upper(char32_t code) {
    return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}
char32_t lower(char32_t code) {
    return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

bool is_letter(char32_t code) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

template <class Goes>
std::string_view without_ends(std::string_view text, bool left, bool right, const Goes& goes) {
    while (left && !text.empty()) {
        const size_t size = next_char(text, 0).size;
        if (!goes(text.substr(0, size))) break;
        text.remove_prefix(size);
    }
    while (right && !text.empty()) {
        const size_t last = previous_char(text, text.size());
        if (!goes(text.substr(last))) break;
        text = text.substr(0, last);
    }
    return text;
}

std::string_view without_spaces(std::string_view text, bool left, bool right) {
    return without_ends(text, left, right, [](std::string_view character) {
        return is_python_space(next_char(character, 0).code);
    });
}

std::vector<std::string> split_spaces(std::string_view text, int64_t limit) {
    spend_reading(text);
    std::vector<std::string> parts;
    text = without_spaces(text, true, false);
    while (!text.empty()) {
        if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
            add_part(parts, without_spaces(text, false, true));
            break;
        }
        size_t end = 0;
        while (end < text.size()) {
            const Utf8Char c = next_char(text, end);
            if (is_python_space(c.code)) break;
            end += c.size;
        }
        add_part(parts, text.substr(0, end));
        text = without_spaces(text.substr(end), true, false);
    }
    return parts;
}

std::vector<std::string> rsplit_spaces(std::string_view text, int64_t limit) {
    std::vector<std::string> parts = split_spaces(text, -1);
    if (limit < 0 || static_cast<int64_t>(parts.size()) <= limit + 1) return parts;
    // The head keeps its inner spaces: cut the wanted parts off the end.
    std::vector<std::string> tail(parts.end() - limit, parts.end());
    for (size_t i = tail.size(); i-- > 0;) {
        text = without_spaces(text, false, true);
        text.remove_suffix(tail[i].size());
    }
    tail.insert(tail.begin(), std::string(without_spaces(text, false, true)));
    return tail;
}

void need_separator(const std::string& separator) {
    if (separator.empty()) throw TemplateError("split: the separator is empty");
}

}  // namespace

bool is_python_space(char32_t code) {
    return is_whitespace(code) || (code >= 0x1C && code <= 0x1F);
}

std::vector<std::string> characters(std::string_view text) {
    std::vector<std::string> out;
    for (size_t at = 0; at < text.size();) {
        const size_t size = next_char(text, at).size;
        add_part(out, text.substr(at, size));
        at += size;
    }
    return out;
}

size_t offset_of(std::string_view text, int64_t index) {
    size_t at = 0;
    for (; index > 0; --index) at += next_char(text, at).size;
    spend(1 + at / kBytesOfReading);
    return at;
}

int64_t length_of(std::string_view text) {
    spend_reading(text);
    int64_t count = 0;
    for (size_t at = 0; at < text.size(); ++count) at += next_char(text, at).size;
    return count;
}

std::string strip(std::string_view text, const std::optional<std::string>& chars, bool left,
                  bool right) {
    spend_reading(text);
    if (!chars) return std::string(without_spaces(text, left, right));
    const std::vector<std::string> each = characters(*chars);
    const std::set<std::string_view> wanted(each.begin(), each.end());
    return std::string(without_ends(
        text, left, right, [&](std::string_view character) { return wanted.contains(character); }));
}

std::string to_upper(std::string_view text) { return map_characters(text, upper); }
std::string to_lower(std::string_view text) { return map_characters(text, lower); }

std::string to_title(std::string_view text) {
    bool in_word = false;
    return map_characters(text, [&](char32_t code) {
        const char32_t out = in_word ? lower(code) : upper(code);
        in_word = is_letter(code);
        return out;
    });
}

std::string to_capitalized(std::string_view text) {
    bool first = true;
    return map_characters(text, [&](char32_t code) {
        const char32_t out = first ? upper(code) : lower(code);
        first = false;
        return out;
    });
}

std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               int64_t limit) {
    if (!separator) return split_spaces(text, limit);
    need_separator(*separator);
    std::vector<std::string> parts;
    for (;;) {
        const bool full = limit >= 0 && static_cast<int64_t>(parts.size()) == limit;
        const size_t hit = full ? std::string_view::npos : find_text(text, *separator);
        add_part(parts, text.substr(0, hit));
        if (hit == std::string_view::npos) return parts;
        text.remove_prefix(hit + separator->size());
    }
}

std::vector<std::string> rsplit(std::string_view text, const std::optional<std::string>& separator,
                                int64_t limit) {
    if (!separator) return rsplit_spaces(text, limit);
    // From the end on, where a search is linear, too.
    std::vector<std::string> parts = split(reversed(text), reversed(*separator), limit);
    std::reverse(parts.begin(), parts.end());
    for (std::string& part : parts) std::reverse(part.begin(), part.end());
    return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
    spend_reading(text);
    std::vector<std::string> lines;
    while (!text.empty()) {
        const size_t end = text.find_first_of("\n\r");
        if (end == std::string_view::npos) {
            add_part(lines, text);
            break;
        }
        const size_t next = end + (text.substr(end, 2) == "\r\n" ? 2 : 1);
        add_part(lines, text.substr(0, keep_ends ? next : end));
        text.remove_prefix(next);
    }
    return lines;
}

void check_text_size(size_t bytes) {
    if (bytes > kMaxTextBytes) throw TemplateError("a text is too long");
}

void append_text(std::string& out, std::string_view text) {
    check_text_size(out.size() + text.size());
    spend(1 + text.size() / kBytesOfWork);
    out += text;
}

size_t find_text(std::string_view text, std::string_view wanted) {
    // memmem is linear (the two-way algorithm), which std::string::find is not.
    const void* at = ::memmem(text.data(), text.size(), wanted.data(), wanted.size());
    const size_t hit = at ? static_cast<size_t>(static_cast<const char*>(at) - text.data())
                          : std::string_view::npos;
    spend(1 + (std::min(hit, text.size()) + wanted.size()) / kBytesOfReading);
    return hit;
}

size_t find_last_text(std::string_view text, std::string_view wanted) {
    const size_t hit = find_text(reversed(text), reversed(wanted));
    return hit == std::string_view::npos ? hit : text.size() - hit - wanted.size();
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit) {
    std::string out;
    if (from.empty()) {
        // Python puts the new text before each character and at the end.
        for (const std::string& character : characters(text)) {
            if (limit-- != 0)
                append_text(out, to);
            else
                ++limit;
            append_text(out, character);
        }
        if (limit != 0) append_text(out, to);
        return out;
    }
    for (; limit != 0; --limit) {
        const size_t hit = find_text(text, from);
        if (hit == std::string_view::npos) break;
        append_text(out, text.substr(0, hit));
        append_text(out, to);
        text.remove_prefix(hit + from.size());
    }
    append_text(out, text);
    return out;
}

std::string indent(std::string_view text, std::string_view prefix, bool first, bool blank) {
    std::string out;
    bool is_first = true;
    for (const std::string& line : split(text, "\n", -1)) {
        if (!is_first) append_text(out, "\n");
        const bool wanted = is_first ? first : (blank || !line.empty());
        if (wanted) append_text(out, prefix);
        append_text(out, line);
        is_first = false;
    }
    return out;
}

bool all_characters(std::string_view text, const std::function<bool(char32_t)>& test) {
    spend_reading(text);
    for (size_t at = 0; at < text.size();) {
        const Utf8Char c = next_char(text, at);
        if (!test(c.code)) return false;
        at += c.size;
    }
    return !text.empty();
}

Slice slice_of(int64_t size, std::optional<int64_t> start, std::optional<int64_t> stop,
               int64_t step) {
    if (step == 0) throw TemplateError("a slice's step is 0");
    const int64_t low = step > 0 ? 0 : -1;
    const int64_t high = step > 0 ? size : size - 1;
    const auto place = [&](std::optional<int64_t> index, int64_t otherwise) {
        if (!index) return otherwise;
        return std::clamp(*index < 0 ? *index + size : *index, low, high);
    };
    const int64_t begin = place(start, step > 0 ? low : high);
    const int64_t end = place(stop, step > 0 ? high : low);
    // A step beyond the size leaves one element; bounding it keeps i + step from overflowing.
    const int64_t stride = std::clamp(step, -size - 1, size + 1);
    const int64_t way = step > 0 ? end - begin : begin - end, each = std::abs(stride);
    return {begin, std::max<int64_t>(0, (way + each - 1) / each), stride};
}

}  // namespace cleave::runtime::jinja
