// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/help_text.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "planner/plan/text_table.h"
#include "tools/cli/command_tree.h"
#include "tools/cli/groups.h"
#include "tools/cli/other_names.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

constexpr size_t kColumn = 30;  // where descriptions begin

int help_width() {
    const int width = terminal_width();
    return width > 0 ? std::clamp(width, 50, 120) : 100;
}

// A name, and what it is from kColumn on.
std::string entry(const std::string& name, const std::string& description) {
    std::string line = "  " + name;
    line += line.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ')
                                      : std::string(kColumn - line.size(), ' ');
    return line + planner::wrapped(description, static_cast<int>(kColumn), help_width() - 1) + "\n";
}

std::string described(const OptionFacts& option) {
    std::string text = option.description;
    if (!option.choices.empty() && text.find(option.choices.back()) == std::string::npos)
        text += fmt::format("; one of {}", fmt::join(option.choices, ", "));
    if (!option.range.empty()) text += " (" + option.range + ")";
    return text;
}

std::string option_line(const OptionFacts& option) {
    return entry(
        option.names() + (option.value.empty() || option.is_positional ? "" : " " + option.value),
        described(option));
}

std::string usage(const CommandFacts& command) {
    std::string text = "Usage: cleave " + command.name;
    for (const OptionFacts& option : command.options)
        if (option.is_positional)
            text += option.is_required ? " " + option.long_name : " [" + option.long_name + "]";
    return text + " [options]\n";
}

std::string options_of_group(const CommandFacts& command, const std::string& group) {
    std::string lines;
    for (const OptionFacts& option : command.options)
        if (!option.is_positional && option.group == group) lines += option_line(option);
    return lines.empty() ? "" : "\n" + group + ":\n" + lines;
}

std::string names_of_others(const CommandFacts& command) {
    std::string lines;
    for (const OtherName& name : other_names())
        if (is_taken_by(name, command))
            lines += entry(std::string(name.name),
                           fmt::format("{}, as {} has it", name.here, name.whose));
    return lines.empty() ? "" : "\nNames of other tools, taken for those here:\n" + lines;
}

std::string help_of(const CLI::App& app, bool all) {
    const CommandFacts command = facts_of(app);
    std::string text = command.description + "\n\n" + usage(command);
    std::string positionals;
    for (const OptionFacts& option : command.options)
        if (option.is_positional) positionals += option_line(option);
    if (!positionals.empty()) text += "\n" + positionals;
    size_t left_out = 0;
    for (const OptionFacts& option : command.options) left_out += option.group == kForExperts;
    for (const char* group : kOptionGroups)
        if (all || std::string_view(group) != kForExperts) text += options_of_group(command, group);
    if (all)
        text += names_of_others(command);
    else if (left_out > 0)
        text += fmt::format(
            "\n{} more for experts, and names of other tools: cleave {} --help-all\n",
            planner::count_text(static_cast<int64_t>(left_out), "option"), command.name);
    if (!command.footer.empty()) text += "\n" + command.footer + "\n";
    return text;
}

std::string commands_text(const CLI::App& app) {
    std::string text;
    std::vector<std::string> groups;
    const std::vector<CommandFacts> commands = commands_of(app);
    for (const CommandFacts& command : commands)
        if (std::find(groups.begin(), groups.end(), command.group) == groups.end())
            groups.push_back(command.group);
    for (const std::string& group : groups) {
        text += "\n" + group + ":\n";
        for (const CommandFacts& command : commands)
            if (command.group == group)
                text += fmt::format("  {:<12}{}\n", command.name,
                                    planner::wrapped(command.description, 14, help_width() - 1));
    }
    return text;
}

class Help : public CLI::FormatterBase {
public:
    std::string make_help(const CLI::App* app, std::string,
                          CLI::AppFormatMode mode) const override {
        if (app->get_parent() != nullptr) return help_of(*app, mode == CLI::AppFormatMode::All);
        std::string text = overview(*app);
        if (mode == CLI::AppFormatMode::All)
            for (const CLI::App* command :
                 app->get_subcommands([](const CLI::App*) { return true; }))
                text += fmt::format("\n\n== cleave {} ==\n{}", command->get_name(),
                                    help_of(*command, true));
        return text;
    }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<Help>(); }

std::string overview(const CLI::App& app) {
    return fmt::format(
        "{}\n\nUsage: cleave COMMAND [options]\n{}\n"
        "cleave help COMMAND says what a command takes, cleave --version which version this is.\n"
        "\n{}\n",
        app.get_description(), commands_text(app), app.get_footer());
}

}  // namespace cleave::tools
