// SPDX-License-Identifier: Apache-2.0
// One file per sub-command. Each `add_*` declares the command's flags, help and worked example, and
// sets a callback that does the work; errors leave it as exceptions, which main() turns into a
// message and an exit code.
#pragma once

#include <CLI/CLI.hpp>

#include "runtime/cards/drivers.h"

namespace cleave::tools {

// `drivers`: the process's, which outlives the command.
void add_run(CLI::App& app, runtime::Drivers& drivers);
void add_plan(CLI::App& app, runtime::Drivers& drivers);
void add_inspect(CLI::App& app, runtime::Drivers& drivers);
void add_why(CLI::App& app, runtime::Drivers& drivers);
void add_why_not(CLI::App& app, runtime::Drivers& drivers);
void add_diff(CLI::App& app);
void add_what_if(CLI::App& app, runtime::Drivers& drivers);
void add_limits(CLI::App& app, runtime::Drivers& drivers);
void add_import(CLI::App& app);
void add_emit(CLI::App& app, runtime::Drivers& drivers);
void add_export(CLI::App& app, runtime::Drivers& drivers);
void add_check(CLI::App& app);
void add_devices(CLI::App& app, runtime::Drivers& drivers);
void add_model(CLI::App& app);
void add_convert(CLI::App& app);
void add_doctor(CLI::App& app, runtime::Drivers& drivers);
void add_cache(CLI::App& app);
void add_serve(CLI::App& app, runtime::Drivers& drivers);
void add_chat(CLI::App& app, runtime::Drivers& drivers);
// Of the commands that are in `app` when theirs is carried out.
void add_completion(CLI::App& app);
void add_man(CLI::App& app);
void add_help(CLI::App& app);  // tools/cli/arguments.h carries it out

// All of them, in their groups, with the options of `cleave` itself but for --version.
void add_commands(CLI::App& app, runtime::Drivers& drivers);

}  // namespace cleave::tools
