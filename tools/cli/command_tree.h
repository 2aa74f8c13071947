// SPDX-License-Identifier: Apache-2.0
// The commands and their options as plain values, read from CLI11's tree. What help, completion of
// shells, the man page and the messages about unknown options are made of.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace cleave::tools {

struct OptionFacts {
    std::string long_name;             // "--output", of a positional "MODEL"; may be empty
    std::string short_name;            // "-o"; may be empty
    std::string value;                 // "FILE", "N"; empty for a flag
    std::vector<std::string> choices;  // the only values that are taken; empty: any
    std::string range;                 // "1..1024"; empty: none that helps a reader
    std::string description;
    std::string group;
    bool is_positional = false, is_required = false;

    // "-o,--output".
    std::string names() const;
};

struct CommandFacts {
    std::string name, description, group;
    std::string footer;                // "Example: ..."
    std::vector<OptionFacts> options;  // positionals first
};

CommandFacts facts_of(const CLI::App& command);
// Of each command, in the order in which they were added.
std::vector<CommandFacts> commands_of(const CLI::App& app);

}  // namespace cleave::tools
