// SPDX-License-Identifier: Apache-2.0
// `--csv` and `--table`: tables of a command as CSV files, for spreadsheets and pandas.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "planner/view/plan_csv.h"

namespace cleave::tools {

struct CsvFlags {
    std::string path;   // a file, "-", or a folder: one that is there, or a name that ends in '/'
    std::string table;  // empty: of a folder all tables, else the first
    bool given() const { return !path.empty(); }
    bool on_stdout() const { return path == "-"; }
};

// `tables`: their names, as help and messages list them.
void add_csv_flags(CLI::App& command, CsvFlags& flags, const std::vector<std::string>& tables);

// Before work starts. UserError for a table without --csv, for standard output that JSON wants,
// too, and for what cannot be written.
void check_csv_flags(const CsvFlags& flags, bool json);

// One table, or each into a folder as NAME.csv. Says on standard error what was written. UserError
// for a table that is not among them.
void write_csv(const CsvFlags& flags, const std::vector<planner::NamedTable>& tables);

}  // namespace cleave::tools
