// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "tools/cli/help_text.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

// Headings of commands in the overview.
void group_commands(CLI::App& app) {
    static const std::map<std::string, std::string> kGroups{
        {"plan", "Plan and inspect"},   {"inspect", "Plan and inspect"},
        {"why", "Plan and inspect"},    {"why-not", "Plan and inspect"},
        {"diff", "Plan and inspect"},   {"what-if", "Plan and inspect"},
        {"limits", "Plan and inspect"}, {"run", "Run and serve"},
        {"serve", "Run and serve"},     {"chat", "Run and serve"},
        {"import", "Models and files"}, {"convert", "Models and files"},
        {"model", "Models and files"},  {"emit", "Models and files"},
        {"export", "Models and files"}, {"check", "Models and files"},
        {"devices", "This machine"},    {"doctor", "This machine"},
        {"cache", "This machine"}};
    for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
        const auto group = kGroups.find(command->get_name());
        command->group(group == kGroups.end() ? "Help" : group->second);
    }
}

}  // namespace

void add_commands(CLI::App& app, runtime::Drivers& drivers) {
    app.formatter(help_formatter());
    app.set_help_flag("-h,--help", "this text");
    app.set_help_all_flag("--help-all", "every option, those for experts too");
    app.require_subcommand(1);
    app.footer(
        "Example: cleave run models/bundled --devices 'host[0-3]' --tp 2 --pp 2 --prompt \"Once "
        "upon a time\"");
    add_plan(app, drivers);
    add_inspect(app, drivers);
    add_why(app, drivers);
    add_why_not(app, drivers);
    add_diff(app);
    add_what_if(app, drivers);
    add_limits(app, drivers);
    add_run(app, drivers);
    add_serve(app, drivers);
    add_chat(app, drivers);
    add_import(app);
    add_convert(app);
    add_model(app);
    add_emit(app, drivers);
    add_export(app, drivers);
    add_check(app);
    add_devices(app, drivers);
    add_doctor(app, drivers);
    add_cache(app);
    add_help(app);
    add_completion(app);
    add_man(app);
    group_commands(app);
}

}  // namespace cleave::tools
