// SPDX-License-Identifier: Apache-2.0
// The words behind `cleave`, made ready for CLI11: `help COMMAND` becomes `COMMAND --help`, options
// by other tools' names become those here, and what no command or option is called is refused with
// the name that it is nearest to.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace cleave::tools {

// In the order in which they were typed, and so is the result. Values of options stay as they are,
// whatever they look like. UserError for an unknown command or option.
std::vector<std::string> ready_arguments(const CLI::App& app, std::vector<std::string> words);

}  // namespace cleave::tools
