// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/completion.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::tools {
namespace {

enum class Takes { kNothing, kChoices, kDevices, kModel, kFile, kText };

Takes takes(const OptionFacts& option) {
    if (option.value.empty() && !option.is_positional) return Takes::kNothing;
    if (!option.choices.empty()) return Takes::kChoices;
    if (option.long_name == "--devices") return Takes::kDevices;
    if (option.long_name == "MODEL" || option.long_name == "SHAPE") return Takes::kModel;
    for (const char* plan : {"PLAN", "A", "B"})
        if (option.long_name == plan) return Takes::kFile;
    for (const char* path : {"FILE", "DIR", "PATH", "FOLDER"})
        if (option.value.starts_with(path) || option.long_name == path) return Takes::kFile;
    return Takes::kText;
}

std::string joined(const std::vector<std::string>& words) {
    return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> names_of(const OptionFacts& option) {
    std::vector<std::string> names;
    for (const std::string& name : {option.short_name, option.long_name})
        if (!name.empty()) names.push_back(name);
    return names;
}

// In single quotes of a shell.
std::string quoted(const std::string& text, const char* quote_inside) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string(quote_inside) : std::string(1, c);
    return out + "'";
}

std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

const OptionFacts* positional_of(const CommandFacts& command) {
    for (const OptionFacts& option : command.options)
        if (option.is_positional) return &option;
    return nullptr;
}

// Of each option with a value: the line of bash that completes it, with the commands it is of.
std::string bash_values(const std::vector<CommandFacts>& commands, const CompletionWords& words) {
    std::map<std::string, std::vector<std::string>> patterns;  // by what completes
    for (const CommandFacts& command : commands)
        for (const OptionFacts& option : command.options) {
            if (option.is_positional) continue;
            std::string does;
            switch (takes(option)) {
                case Takes::kNothing: continue;
                case Takes::kChoices:
                    does = "_cleave_words '" + joined(option.choices) + "'";
                    break;
                case Takes::kDevices: does = "_cleave_words '" + joined(words.devices) + "'"; break;
                case Takes::kModel:
                case Takes::kFile: does = "_cleave_files ''"; break;
                case Takes::kText: does = ":"; break;
            }
            for (const std::string& name : names_of(option))
                patterns[does].push_back("'" + command.name + " " + name + "'");
        }
    std::string text;
    for (const auto& [does, of] : patterns)
        text += fmt::format("    {})\n      {}; return ;;\n", fmt::join(of, " | "), does);
    return text;
}

}  // namespace

std::string bash_completion(const std::vector<CommandFacts>& commands,
                            const CompletionWords& words) {
    std::vector<std::string> names;
    std::string options, positionals;
    for (const CommandFacts& command : commands) {
        names.push_back(command.name);
        std::vector<std::string> own;
        for (const OptionFacts& option : command.options)
            if (!option.is_positional)
                for (const std::string& name : names_of(option)) own.push_back(name);
        options += fmt::format("      {}) _cleave_words '{}' ;;\n", command.name, joined(own));
        const OptionFacts* positional = positional_of(command);
        if (!positional) continue;
        positionals +=
            takes(*positional) == Takes::kChoices
                ? fmt::format("      {}) _cleave_words '{}' ;;\n", command.name,
                              joined(positional->choices))
                : fmt::format("      {}) _cleave_files '{}' ;;\n", command.name,
                              takes(*positional) == Takes::kModel ? joined(words.models) : "");
    }
    return fmt::format(R"(# Completion of cleave for bash: cleave completion bash
# Words are taken from the line itself: bash cuts them at colons, which devices have.
_cleave_words() {{
  local before="${{cur%"${{cur##*[:=]}}"}}"
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
  COMPREPLY=("${{COMPREPLY[@]#"$before"}}")
}}
_cleave_files() {{
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"; compgen -f -- "$cur")
}}
_cleave() {{
  local line="${{COMP_LINE:0:COMP_POINT}}" cur prev command words
  read -ra words <<< "$line"
  cur="${{line##*[[:space:]]}}"
  [[ -n $cur ]] && unset 'words[-1]'
  command="${{words[1]}}" prev="${{words[-1]}}"
  COMPREPLY=()
  if ((${{#words[@]}} < 2)); then
    _cleave_words '{} --help --version'
    return
  fi
  case "$command $prev" in
{}  esac
  if [[ $cur == -* ]]; then
    case "$command" in
{}    esac
  else
    case "$command" in
{}    esac
  fi
}}
complete -F _cleave cleave
)",
                       joined(names), bash_values(commands, words), options, positionals);
}

namespace {

// Inside the brackets of _arguments, and behind a colon of it.
std::string zsh_text(const std::string& text) {
    std::string out;
    for (const char c : one_line(text)) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
        out += c;
    }
    return out;
}

std::string zsh_action(const OptionFacts& option, const CompletionWords& words) {
    switch (takes(option)) {
        case Takes::kNothing: return "";
        case Takes::kChoices: return "(" + joined(option.choices) + ")";
        case Takes::kDevices: return "_cleave_devices";
        case Takes::kModel: return words.models.empty() ? "_files" : "_cleave_models";
        case Takes::kFile: return "_files";
        case Takes::kText: return " ";
    }
    return "";
}

}  // namespace

std::string zsh_completion(const std::vector<CommandFacts>& commands,
                           const CompletionWords& words) {
    std::string list, cases;
    for (const CommandFacts& command : commands) {
        list += "    " + quoted(command.name + ":" + zsh_text(command.description), "'\\''") + "\n";
        cases += fmt::format("    {})\n      _arguments -s", command.name);
        for (const OptionFacts& option : command.options) {
            const std::string action = zsh_action(option, words);
            if (option.is_positional) {
                cases += " \\\n        " +
                         quoted(fmt::format(":{}:{}", zsh_text(option.long_name), action), "'\\''");
                continue;
            }
            for (const std::string& name : names_of(option))
                cases +=
                    " \\\n        " +
                    quoted(fmt::format("*{}[{}]{}", name, zsh_text(option.description),
                                       action.empty()
                                           ? ""
                                           : fmt::format(":{}:{}", zsh_text(option.value), action)),
                           "'\\''");
        }
        cases += "\n      ;;\n";
    }
    return fmt::format(R"(#compdef cleave
# Completion of cleave for zsh: cleave completion zsh
_cleave_models() {{
  _alternative 'files:file:_files' 'shapes:shape:({})'
}}
_cleave_devices() {{
  local -a devices=({})
  compadd -a devices
}}
_cleave() {{
  local -a commands=(
{}  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
{}  esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _cleave "$@"
else
  compdef _cleave cleave
fi
)",
                       joined(words.models), joined(words.devices), list, cases);
}

std::string fish_completion(const std::vector<CommandFacts>& commands,
                            const CompletionWords& words) {
    std::string text =
        "# Completion of cleave for fish: cleave completion fish\n"
        "complete -c cleave -f\n";
    const auto quote = [](const std::string& of) {
        std::string escaped;
        for (const char c : one_line(of)) escaped += c == '\\' ? "\\\\" : std::string(1, c);
        return quoted(escaped, "\\'");
    };
    for (const CommandFacts& command : commands) {
        text += fmt::format("complete -c cleave -n __fish_use_subcommand -a {} -d {}\n",
                            command.name, quote(command.description));
        const std::string of =
            fmt::format("complete -c cleave -n '__fish_seen_subcommand_from {}'", command.name);
        for (const OptionFacts& option : command.options) {
            std::string action;
            switch (takes(option)) {
                case Takes::kNothing: break;
                case Takes::kChoices: action = " -xa " + quote(joined(option.choices)); break;
                case Takes::kDevices: action = " -xa " + quote(joined(words.devices)); break;
                case Takes::kModel: action = " -Fa " + quote(joined(words.models)); break;
                case Takes::kFile: action = " -rF"; break;
                case Takes::kText: action = " -x"; break;
            }
            if (option.is_positional) {
                if (takes(option) == Takes::kFile) action = " -F";
                if (takes(option) == Takes::kChoices)
                    action = " -a " + quote(joined(option.choices));
                if (takes(option) != Takes::kText) text += of + action + "\n";
                continue;
            }
            text += of;
            if (!option.short_name.empty()) text += " -s " + option.short_name.substr(1);
            if (!option.long_name.empty()) text += " -l " + option.long_name.substr(2);
            text += action + " -d " + quote(option.description) + "\n";
        }
    }
    return text;
}

}  // namespace cleave::tools
