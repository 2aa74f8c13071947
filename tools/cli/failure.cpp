// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/failure.h"

#include <mutex>

#include "tools/cli/spelling.h"
#include "tools/cli/terminal.h"

namespace cleave::tools {
namespace {

std::once_flag said;

// Only the first line of a message begins where a line of Cleave's own does: no name from a file
// with a line feed in it looks like a message.
std::string indented(const std::string& message) {
    std::string text;
    for (size_t i = 0; i < message.size(); ++i) {
        text += message[i];
        const char next = i + 1 < message.size() ? message[i + 1] : '\n';
        if (message[i] == '\n' && next != '\n' && next != ' ') text += "  ";
    }
    return text;
}

}  // namespace

void say_failure(const std::string& message) {
    std::call_once(
        said, [&] { say("{} {}\n", red("cleave:"), indented(spell_for_command_line(message))); });
}

}  // namespace cleave::tools
