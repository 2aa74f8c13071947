// SPDX-License-Identifier: Apache-2.0
// The text of --help: everyday options under headings, each with its default; --help-all adds those
// for experts and the names of other tools.
#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

namespace cleave::tools {

// Gives help to commands that are added to the app later. Its lines are as wide as the terminal.
std::shared_ptr<CLI::FormatterBase> help_formatter();

// What `cleave` alone shows: its commands by use, and the way on.
std::string overview(const CLI::App& app);

}  // namespace cleave::tools
