// SPDX-License-Identifier: Apache-2.0
// Scripts that complete `cleave` in shells, and its man page, written from the command tree that
// help is written from. Deterministic.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/command_tree.h"

namespace cleave::tools {

// What completes a value beside the choices that its option has.
struct CompletionWords {
    std::vector<std::string> models;   // shape names, beside files
    std::vector<std::string> devices;  // "host", "sim:h100"
};

std::string bash_completion(const std::vector<CommandFacts>& commands,
                            const CompletionWords& words);
std::string zsh_completion(const std::vector<CommandFacts>& commands, const CompletionWords& words);
std::string fish_completion(const std::vector<CommandFacts>& commands,
                            const CompletionWords& words);

// In roff with the macros of man(7). `description`: of cleave itself.
std::string man_page(const std::vector<CommandFacts>& commands, const std::string& description,
                     const std::string& version);

}  // namespace cleave::tools
