// SPDX-License-Identifier: Apache-2.0
// Aligned columns and readable quantities for text views. Rows are cells; a column is as wide as
// its widest cell. Widths count UTF-8 characters.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cleave::planner {

std::string bytes_text(int64_t bytes);                       // "1.23 GB", "412 B": powers of 1000
std::string time_text(int64_t ns);                           // "1.23 ms"
std::string count_text(int64_t n, const std::string& noun);  // "1 step", "2 steps"
// From the least to the most: "1.20-1.35 GB", "999 kB-1.00 MB", or of two that read alike one.
std::string span_text(const std::string& least, const std::string& most);

class TextTable {
public:
    // One character a column: '<' left, '>' right.
    TextTable(std::string alignment, std::string indent)
        : alignment_(std::move(alignment)), indent_(std::move(indent)) {}
    void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    // A line of its own between rows, not aligned with them.
    void line(std::string text) { rows_.push_back({std::move(text)}); }
    // These columns may be left out where there is no room, in this order. The first row has their
    // names, which a line below the table tells.
    void may_drop(std::vector<size_t> columns) { optional_ = std::move(columns); }
    // Of more rows than `most` the first ones and the last stay, and a line says how many went.
    void fold(size_t most);
    // Columns are two spaces apart. Nothing is cut. Where a row is longer than `width`, columns are
    // left out that may be; then cells of the widest columns take several lines; what is longer
    // still is longer. `width` 0: no bound.
    std::string text(int width) const;

private:
    size_t total(const std::vector<size_t>& widths) const;
    std::vector<size_t> drop(std::vector<size_t>& widths, size_t width) const;
    void shrink(std::vector<size_t>& widths, size_t width) const;
    void add_row(const std::vector<std::string>& row, const std::vector<size_t>& widths,
                 std::string& out) const;

    std::string alignment_, indent_;
    std::vector<std::vector<std::string>> rows_;
    std::vector<size_t> optional_;
};

// `text` broken at spaces into lines of at most `width` (0: 100, as prose is read), each after the
// first indented by `indent` spaces. A word longer than a line is broken, too, but not by width 0.
std::string wrapped(const std::string& text, int indent, int width);

}  // namespace cleave::planner
