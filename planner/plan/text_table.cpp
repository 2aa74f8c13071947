// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/text_table.h"

#include <algorithm>
#include <climits>
#include <utility>

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

size_t next_character(const std::string& text, size_t at) {
    ++at;
    while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;
    return at;
}

// The text in lines of at most `width` characters, broken behind spaces and commas, or where a word
// is longer than a line.
std::vector<std::string> broken(const std::string& text, size_t width) {
    std::vector<std::string> lines;
    // What a cell is indented by is kept, and continued.
    const size_t margin = std::min(text.find_first_not_of(' '), text.size());
    size_t begin = 0, at = margin, good = margin, count = margin;
    while (at < text.size()) {
        const char c = text[at];
        at = next_character(text, at);
        ++count;
        if (c == ' ' || c == ',') good = at;
        if (count < width || at == text.size()) continue;
        const bool space_follows = text[at] == ' ';
        const size_t end = space_follows || good <= (begin == 0 ? margin : begin) ? at : good;
        lines.push_back(std::string(begin == 0 ? 0 : margin, ' ') +
                        text.substr(begin, end - begin));
        while (!lines.back().empty() && lines.back().back() == ' ') lines.back().pop_back();
        begin = space_follows ? at + 1 : end;
        at = good = begin;
        count = margin;
    }
    if (begin < text.size() || lines.empty())
        lines.push_back(std::string(begin == 0 ? 0 : margin, ' ') + text.substr(begin));
    return lines;
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

std::string span_text(const std::string& least, const std::string& most) {
    if (least == most) return most;
    const size_t unit = least.rfind(' '), other = most.rfind(' ');
    const bool same = unit != std::string::npos && other != std::string::npos &&
                      least.substr(unit) == most.substr(other);
    return (same ? least.substr(0, unit) : least) + "-" + most;
}

size_t TextTable::total(const std::vector<size_t>& widths) const {
    size_t total = indent_.size();
    for (size_t i = 0, shown = 0; i < widths.size(); ++i)
        if (widths[i] > 0) total += widths[i] + (shown++ > 0 ? 2 : 0);
    return total;
}

// Columns that are left out: in the order of may_drop until the others fit, less those that then
// have room after all.
std::vector<size_t> TextTable::drop(std::vector<size_t>& widths, size_t width) const {
    const std::vector<size_t> natural = widths;
    std::vector<size_t> dropped;
    for (size_t column : optional_) {
        if (total(widths) <= width) break;
        if (widths[column] == 0) continue;
        widths[column] = 0;
        dropped.push_back(column);
    }
    for (size_t i = dropped.size(); i-- > 0;) {
        std::vector<size_t> with = widths;
        with[dropped[i]] = natural[dropped[i]];
        if (total(with) > width) continue;
        widths = with;
        dropped.erase(dropped.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return dropped;
}

void TextTable::fold(size_t most) {
    if (rows_.size() <= most + 1) return;  // the first one is the head
    const size_t gone = rows_.size() - most - 1;
    const auto from = rows_.begin() + static_cast<std::ptrdiff_t>(most);
    rows_.erase(from, from + static_cast<std::ptrdiff_t>(gone));
    rows_.insert(rows_.end() - 1, {fmt::format("and {} more", gone)});
}

// The widest columns become narrower, and their cells take several lines.
void TextTable::shrink(std::vector<size_t>& widths, size_t width) const {
    constexpr size_t kShortest = 12;
    for (size_t all = total(widths); all > width; --all) {
        size_t widest = widths.size();
        for (size_t i = 0; i < widths.size(); ++i)
            if (widths[i] > kShortest && (widest == widths.size() || widths[i] > widths[widest]))
                widest = i;
        if (widest == widths.size()) return;
        --widths[widest];
    }
}

void TextTable::add_row(const std::vector<std::string>& row, const std::vector<size_t>& widths,
                        std::string& out) const {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t i = 0; i < row.size(); ++i) {
        cells.push_back(widths[i] > 0 ? broken(row[i], widths[i]) : std::vector{row[i]});
        if (widths[i] > 0) height = std::max(height, cells[i].size());
    }
    for (size_t n = 0; n < height; ++n) {
        std::string line = indent_;
        bool first = true;
        for (size_t i = 0; i < row.size(); ++i) {
            if (widths[i] == 0) continue;  // an empty column takes no room
            const std::string cell = n < cells[i].size() ? cells[i][n] : "";
            const size_t length = characters(cell);
            const std::string space(widths[i] > length ? widths[i] - length : 0, ' ');
            if (!std::exchange(first, false)) line += "  ";
            line += alignment_[i] == '>' ? space + cell : cell + space;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + "\n";
    }
}

std::string TextTable::text(int width) const {
    std::vector<size_t> widths(alignment_.size());
    for (const auto& row : rows_)
        for (size_t i = 0; row.size() > 1 && i < row.size(); ++i)
            widths[i] = std::max(widths[i], characters(row[i]));
    std::vector<size_t> dropped;
    if (width > 0) {
        dropped = drop(widths, static_cast<size_t>(width));
        shrink(widths, static_cast<size_t>(width));
    }
    std::string out;
    for (const auto& row : rows_) {
        if (row.size() > 1)
            add_row(row, widths, out);
        else
            out +=
                indent_ +
                wrapped(row[0], static_cast<int>(indent_.size()) + 2, width > 0 ? width : INT_MAX) +
                "\n";
    }
    if (dropped.empty()) return out;
    std::string names;
    for (size_t column : dropped) names += (names.empty() ? "" : ", ") + rows_.front()[column];
    return out + indent_ +
           wrapped(fmt::format("({} columns have no room for: {})", width, names),
                   static_cast<int>(indent_.size()), width) +
           "\n";
}

std::string wrapped(const std::string& text, int indent, int width) {
    constexpr int kProse = 100, kShortest = 12;
    const size_t room =
        static_cast<size_t>(std::max(kShortest, (width > 0 ? width : kProse) - indent));
    std::string out, line;
    const std::string margin(static_cast<size_t>(indent), ' ');
    size_t at = 0;
    const auto new_line = [&] {
        out.append(line).append("\n").append(margin);
        line.clear();
    };
    while (at < text.size()) {
        size_t space = std::min(text.find(' ', at), text.size());
        std::string word = text.substr(at, space - at);
        if (!line.empty() && characters(line) + 1 + characters(word) > room) new_line();
        if (!line.empty()) line += ' ';
        const std::vector<std::string> parts = width > 0 ? broken(word, room) : std::vector{word};
        for (size_t i = 0; i < parts.size(); ++i) {
            if (i > 0) new_line();
            line += parts[i];
        }
        at = space + 1;
    }
    return out + line;
}

}  // namespace cleave::planner
