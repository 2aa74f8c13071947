// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/text_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace cleave::planner {
namespace {

// Three significant digits.
std::string scaled(double value, const char* unit) {
    if (value < 9.995) return fmt::format("{:.2f} {}", value, unit);
    if (value < 99.95) return fmt::format("{:.1f} {}", value, unit);
    return fmt::format("{:.0f} {}", value, unit);
}

size_t characters(const std::string& text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string cut(const std::string& text, size_t width) {
    if (characters(text) <= width) return text;
    size_t at = 0, seen = 0;
    while (at < text.size() && seen + 3 < width) {
        ++at;
        while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
        ++seen;
    }
    return text.substr(0, at) + "...";
}

}  // namespace

std::string bytes_text(int64_t bytes) {
    const double b = static_cast<double>(bytes);
    const double size = b < 0 ? -b : b;
    if (size < 1000) return fmt::format("{} B", bytes);
    if (size < 999.5e3) return scaled(b / 1e3, "kB");
    if (size < 999.5e6) return scaled(b / 1e6, "MB");
    if (size < 999.5e9) return scaled(b / 1e9, "GB");
    return scaled(b / 1e12, "TB");
}

std::string time_text(int64_t ns) {
    const double t = static_cast<double>(ns);
    if (t < 1000) return fmt::format("{} ns", ns);
    if (t < 999.5e3) return scaled(t / 1e3, "us");
    if (t < 999.5e6) return scaled(t / 1e6, "ms");
    return scaled(t / 1e9, "s");
}

std::string count_text(int64_t n, const std::string& noun) {
    return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

void TextTable::shrink(std::vector<size_t>& widths, size_t width) const {
    constexpr size_t kShortest = 12;
    size_t total = indent_.size();
    for (size_t i = 0; i < widths.size(); ++i)
        if (widths[i] > 0) total += widths[i] + (i > 0 ? 2 : 0);
    for (; total > width; --total) {
        size_t widest = widths.size();
        for (size_t i = 0; i < widths.size(); ++i)
            if (alignment_[i] == '<' && widths[i] > kShortest &&
                (widest == widths.size() || widths[i] > widths[widest]))
                widest = i;
        if (widest == widths.size()) return;
        --widths[widest];
    }
}

std::string TextTable::text(int width) const {
    std::vector<size_t> widths(alignment_.size());
    for (const auto& row : rows_)
        for (size_t i = 0; row.size() > 1 && i < row.size(); ++i)
            widths[i] = std::max(widths[i], characters(row[i]));
    shrink(widths, static_cast<size_t>(std::max(0, width)));
    std::string out;
    for (const auto& row : rows_) {
        std::string line = indent_;
        if (row.size() == 1) line += row[0];
        for (size_t i = 0; row.size() > 1 && i < row.size(); ++i) {
            std::string cell = cut(row[i], widths[i]);
            std::string space(widths[i] - characters(cell), ' ');
            // An empty column takes no room.
            if (i > 0 && widths[i] > 0) line += "  ";
            line += alignment_[i] == '>' ? space + cell : cell + space;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        out += cut(line, static_cast<size_t>(width)) + "\n";
    }
    return out;
}

std::string wrapped(const std::string& text, int indent, int width) {
    std::string out, line;
    const std::string margin(static_cast<size_t>(indent), ' ');
    size_t at = 0;
    while (at < text.size()) {
        size_t space = std::min(text.find(' ', at), text.size());
        std::string word = text.substr(at, space - at);
        if (!line.empty() &&
            characters(line) + 1 + characters(word) + margin.size() > static_cast<size_t>(width)) {
            out.append(line).append("\n").append(margin);
            line.clear();
        }
        if (!line.empty()) line += ' ';
        line += word;
        at = space + 1;
    }
    return out + line;
}

}  // namespace cleave::planner
