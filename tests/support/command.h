// SPDX-License-Identifier: Apache-2.0
// Runs the built `cleave` command as a user does, and gives its exit code and both outputs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace cleave::test {

struct CommandResult {
    int exit_code = -1;
    std::string output;  // standard output
    std::string error;   // standard error
};

// The first is the program.
CommandResult run_program(const std::vector<std::string>& arguments);
CommandResult run_cleave(const std::vector<std::string>& arguments);

// The first words and then the others.
std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& others);

// Empty where there is no such file.
std::string read_file(const std::filesystem::path& path);

// The model that the repository carries.
std::filesystem::path bundled_model();

}  // namespace cleave::test
