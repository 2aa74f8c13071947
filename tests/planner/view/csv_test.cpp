// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "planner/view/csv.h"
#include "runtime/base/errors.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

using planner::CsvCell;
using planner::CsvTable;

TEST_CASE("a CSV table is a header and a line a row", "[planner][view]") {
    CsvTable table({"device", "kv_bytes", "predicted_us"});
    table.row({"host[0]", int64_t{1} << 40, 1.25});
    table.row({"host[1]", -3, {}});
    CHECK(table.text() ==
          "device,kv_bytes,predicted_us\n"
          "host[0],1099511627776,1.25\n"
          "host[1],-3,\n");
}

TEST_CASE("CSV fields are quoted as RFC 4180 says, and only where they must be",
          "[planner][view]") {
    CHECK(CsvCell("a b;c").field() == "a b;c");
    CHECK(CsvCell("a,b").field() == "\"a,b\"");
    CHECK(CsvCell("say \"x\"").field() == "\"say \"\"x\"\"\"");
    CHECK(CsvCell("two\nlines").field() == "\"two\nlines\"");
    CHECK(CsvCell("cr\r").field() == "\"cr\r\"");
    CHECK(CsvCell(" led").field() == "\" led\"");
    CHECK(CsvCell("").field().empty());
    // A byte that begins nothing becomes U+FFFD.
    CHECK(CsvCell("x\xffy").field() == "x\xef\xbf\xbdy");
}

TEST_CASE("CSV numbers read back as the same, and what is no number is an empty field",
          "[planner][view]") {
    CHECK(CsvCell(0.1).field() == "0.1");
    CHECK(std::stod(CsvCell(1.0 / 3).field()) == 1.0 / 3);
    CHECK(CsvCell(NAN).field().empty());
    CHECK(CsvCell(INFINITY).field().empty());
}

TEST_CASE("a CSV row has a cell a column", "[planner][view]") {
    CsvTable table({"a", "b"});
    CHECK_THROWS_AS(table.row({1}), InternalError);
    CHECK_THROWS_AS(CsvTable({}), InternalError);
    CsvTable one({"only"});
    one.row({""});
    CHECK(one.text() == "only\n\"\"\n");
}

}  // namespace
}  // namespace cleave::test
