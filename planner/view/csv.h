// SPDX-License-Identifier: Apache-2.0
// A table as CSV, for spreadsheets and pandas.read_csv: one header, then a line a row, each ended
// by a line feed. A cell with a comma, a quote or a line break is quoted as RFC 4180 says. Numbers
// are plain, with a point and without separators; the header's names end with their unit
// ("kv_bytes", "predicted_us"). What is not UTF-8 is replaced.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::planner {

// A cell: text, a number, or nothing (an empty field, pandas' NaN).
class CsvCell {
public:
    CsvCell() = default;
    CsvCell(std::string_view text);
    CsvCell(const std::string& text) : CsvCell(std::string_view(text)) {}
    CsvCell(const char* text) : CsvCell(std::string_view(text)) {}
    CsvCell(std::integral auto number) : field_(std::to_string(number)) {}
    CsvCell(double number);  // the shortest decimals that read as the same; NaN and infinity: empty
    const std::string& field() const { return field_; }

private:
    std::string field_;  // quoted where it must be
};

class CsvTable {
public:
    // A table without columns has no use: InternalError.
    explicit CsvTable(std::vector<std::string> header);
    // InternalError unless there is a cell a column.
    void row(const std::vector<CsvCell>& cells);
    const std::string& text() const { return text_; }

private:
    void line(const std::vector<CsvCell>& cells);

    size_t columns_ = 0;
    std::string text_;
};

}  // namespace cleave::planner
