// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/cli/completion.h"
#include "tools/cli/groups.h"
#include "tools/cli/other_names.h"

namespace cleave::tools {
namespace {

// Text as roff prints it: no backslash, dash or leading dot of it is a request.
std::string roff(const std::string& text) {
    std::string out;
    bool begins = true;
    for (const char c : text) {
        if (begins && (c == '.' || c == '\'')) out += "\\&";
        begins = c == '\n';
        if (c == '\\')
            out += "\\e";
        else if (c == '-')
            out += "\\-";
        else
            out += c;
    }
    return out;
}

std::string option_text(const OptionFacts& option) {
    std::string text = ".TP\n.B " + roff(option.is_positional ? option.long_name : option.names());
    if (!option.value.empty() && !option.is_positional)
        text += " \\fI" + roff(option.value) + "\\fR";
    text += "\n" + roff(option.description);
    if (!option.choices.empty())
        text += roff(fmt::format(" ({})", fmt::join(option.choices, ", ")));
    return text + "\n";
}

std::string command_text(const CommandFacts& command) {
    std::string text =
        fmt::format(".SS cleave {}\n{}.\n", roff(command.name), roff(command.description));
    for (const OptionFacts& option : command.options)
        if (option.is_positional) text += option_text(option);
    for (const char* group : kOptionGroups)
        for (const OptionFacts& option : command.options)
            if (!option.is_positional && option.group == group) text += option_text(option);
    if (!command.footer.empty()) text += ".PP\n.nf\n" + roff(command.footer) + "\n.fi\n";
    return text;
}

}  // namespace

std::string man_page(const std::vector<CommandFacts>& commands, const std::string& description,
                     const std::string& version) {
    std::string text = fmt::format(
        ".\\\" cleave man\n.TH CLEAVE 1 \"\" \"cleave {}\" \"User Commands\"\n"
        ".SH NAME\ncleave \\- plans and runs one language model over several devices\n"
        ".SH SYNOPSIS\n.B cleave\n\\fICOMMAND\\fR [\\fIoptions\\fR]\n"
        ".SH DESCRIPTION\n{}\n.SH COMMANDS\n",
        roff(version), roff(description));
    for (const CommandFacts& command : commands) text += command_text(command);
    text += ".SH NAMES OF OTHER TOOLS\nTaken for the option here, where a command has it.\n";
    for (const OtherName& name : other_names())
        text += fmt::format(".TP\n.B {}\n{}, of {}\n", roff(std::string(name.name)),
                            roff(std::string(name.here)), roff(std::string(name.whose)));
    text +=
        ".SH EXIT STATUS\n0: done. 1: the input's fault, with one message. 2: an error of cleave "
        "itself. 130: interrupted.\n"
        ".SH ENVIRONMENT\n.TP\n.B COLUMNS\nwidth of text and tables; without it that of the "
        "terminal, and off a terminal no bound\n"
        ".TP\n.B NO_COLOR\nset and not empty: no colours\n"
        ".PP\n.B cleave doctor\nlists the others.\n";
    return text;
}

}  // namespace cleave::tools
