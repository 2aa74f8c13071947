// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/csv_flags.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/errors.h"
#include "runtime/base/file_set.h"
#include "runtime/base/path_state.h"
#include "tools/cli/files.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

namespace fs = std::filesystem;

bool names_folder(const CsvFlags& flags) {
    return flags.path.ends_with('/') || is_folder(flags.path);
}

std::string table_file(const CsvFlags& flags, const std::string& table) {
    return (fs::path(flags.path) / (table + ".csv")).string();
}

}  // namespace

void add_csv_flags(CLI::App& command, CsvFlags& flags, const std::vector<std::string>& tables) {
    command
        .add_option("--csv", flags.path,
                    "write a table as CSV: FILE, or - for standard output; a folder (DIR/): all "
                    "tables, NAME.csv each")
        ->type_name("FILE");
    command
        .add_option("--table", flags.table,
                    fmt::format("which of {}; default: {}, or all into a folder",
                                fmt::join(tables, ", "), tables.front()))
        ->check(CLI::IsMember(tables))
        ->type_name("NAME");
}

void check_csv_flags(const CsvFlags& flags, bool json) {
    if (!flags.given()) {
        if (!flags.table.empty())
            throw UserError("--table {}: it chooses what --csv writes; give --csv FILE, too",
                            flags.table);
        return;
    }
    if (flags.on_stdout() && json)
        throw UserError("--csv - and --json both want standard output; give --csv a file");
    if (flags.on_stdout()) return;
    if (!names_folder(flags)) return check_writable("--csv", flags.path);
    // The folder, or the first above it that is there: the others are made when there is a table.
    fs::path folder = fs::absolute(flags.path);
    while (!is_there(folder) && folder.has_relative_path()) folder = folder.parent_path();
    check_writable("--csv", (folder / "table.csv").string());
}

void write_csv(const CsvFlags& flags, const std::vector<planner::NamedTable>& tables) {
    FileSet folder;
    if (names_folder(flags)) folder.make_folder(flags.path);
    const auto write = [&](const std::string& path, const planner::NamedTable& table) {
        write_file("--csv", path, table.text);
        say("table {} written to {}\n", table.name, path);
    };
    if (names_folder(flags) && flags.table.empty()) {
        for (const planner::NamedTable& table : tables) write(table_file(flags, table.name), table);
        return;
    }
    const auto chosen = flags.table.empty()
                            ? tables.begin()
                            : std::ranges::find(tables, flags.table, &planner::NamedTable::name);
    if (chosen == tables.end()) {
        std::vector<std::string> there;
        for (const planner::NamedTable& table : tables) there.push_back(table.name);
        throw UserError("{}: it has no such table; it has {}{}",
                        flags.table.empty() ? "--csv" : "--table " + flags.table,
                        there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")),
                        flags.table == "measured" || flags.table == "differences"
                            ? "; --trace FILE gives what a run measured"
                            : "");
    }
    if (flags.on_stdout())
        show_generated(chosen->text);
    else
        write(names_folder(flags) ? table_file(flags, chosen->name) : flags.path, *chosen);
}

}  // namespace cleave::tools
