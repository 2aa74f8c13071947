// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/completion.h"

#include <memory>

#include "models/shapes.h"
#include "planner/machine/catalogue.h"
#include "tools/cli/terminal.h"
#include "tools/commands/commands.h"

namespace cleave::tools {
namespace {

CompletionWords completion_words() {
    CompletionWords words;
    words.models = models::shape_names();
    words.devices = {"host", "cuda", "hip"};
    for (const planner::CatalogueModel& model : planner::catalogue())
        words.devices.push_back("sim:" + std::string(model.name));
    return words;
}

}  // namespace

void add_completion(CLI::App& app) {
    auto shell = std::make_shared<std::string>();
    CLI::App* command = app.add_subcommand(
        "completion", "print the script that completes cleave's commands and options in a shell");
    command->add_option("SHELL", *shell, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    command->footer(
        "Example: cleave completion bash > ~/.local/share/bash-completion/completions/cleave\n"
        "         source <(cleave completion zsh)\n"
        "         cleave completion fish | source");
    command->callback([&app, shell] {
        const std::vector<CommandFacts> commands = commands_of(app);
        const auto script = *shell == "bash"  ? bash_completion
                            : *shell == "zsh" ? zsh_completion
                                              : fish_completion;
        show_text(script(commands, completion_words()));
    });
}

void add_man(CLI::App& app) {
    CLI::App* command = app.add_subcommand("man", "print the man page");
    command->footer("Example: cleave man | man -l -");
    command->callback(
        [&app] { show_text(man_page(commands_of(app), app.get_description(), CLEAVE_VERSION)); });
}

void add_help(CLI::App& app) {
    CLI::App* command = app.add_subcommand("help", "say what a command takes");
    auto name = std::make_shared<std::string>();
    command->add_option("COMMAND", *name, "one of those here");
    command->footer("Example: cleave help plan");
}

}  // namespace cleave::tools
