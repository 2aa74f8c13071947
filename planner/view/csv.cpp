// SPDX-License-Identifier: Apache-2.0
#include "planner/view/csv.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

std::string as_utf8(std::string_view text) {
    using Json = nlohmann::json;
    const std::string safe =
        Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
    return Json::parse(safe).get<std::string>();
}

}  // namespace

CsvCell::CsvCell(std::string_view text) {
    const std::string whole = as_utf8(text);
    // A field that begins or ends with a space is quoted, too: some readers trim it otherwise.
    const bool plain = whole.find_first_of(",\"\r\n") == std::string::npos &&
                       (whole.empty() || (whole.front() != ' ' && whole.back() != ' '));
    if (plain) {
        field_ = whole;
        return;
    }
    field_ = '"';
    for (char c : whole) {
        if (c == '"') field_ += '"';
        field_ += c;
    }
    field_ += '"';
}

CsvCell::CsvCell(double number) {
    if (std::isfinite(number)) field_ = fmt::format("{}", number);
}

CsvTable::CsvTable(std::vector<std::string> header) : columns_(header.size()) {
    CLEAVE_CHECK(columns_ > 0) << "a table without columns";
    line({header.begin(), header.end()});
}

void CsvTable::row(const std::vector<CsvCell>& cells) {
    CLEAVE_CHECK(cells.size() == columns_)
        << cells.size() << " cells in a row of " << columns_ << " columns";
    line(cells);
}

void CsvTable::line(const std::vector<CsvCell>& cells) {
    // A row of one empty field would be an empty line, which readers skip.
    if (cells.size() == 1 && cells[0].field().empty()) text_ += "\"\"";
    for (size_t i = 0; i < cells.size(); ++i) {
        if (i > 0) text_ += ',';
        text_ += cells[i].field();
    }
    text_ += '\n';
}

}  // namespace cleave::planner
