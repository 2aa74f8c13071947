// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/arguments.h"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/ranges.h>

#include "runtime/base/errors.h"
#include "runtime/base/suggest.h"
#include "tools/cli/command_tree.h"
#include "tools/cli/other_names.h"

namespace cleave::tools {
namespace {

// What other tools have an option for and the planner decides here.
constexpr std::array<std::string_view, 10> kDecidedHere{
    "-ngl", "--n-gpu-layers", "--gpu-layers", "-sm", "--split-mode",
    "-ts",  "--tensor-split", "--device-map", "-mg", "--main-gpu"};

const OptionFacts* find_option(const CommandFacts& command, std::string_view name) {
    for (const OptionFacts& option : command.options)
        if (!option.is_positional && (option.long_name == name || option.short_name == name))
            return &option;
    return nullptr;
}

const OtherName* find_other_name(const CommandFacts& command, std::string_view name) {
    for (const OtherName& other : other_names())
        if (other.name == name && is_taken_by(other, command)) return &other;
    return nullptr;
}

[[noreturn]] void refuse_option(const std::vector<CommandFacts>& commands,
                                const CommandFacts& command, const std::string& name) {
    if (std::find(kDecidedHere.begin(), kDecidedHere.end(), name) != kDecidedHere.end())
        throw UserError(
            "{} has no option {}: what runs where is the planner's choice, among --devices; --tp, "
            "--pp and --pin force it",
            command.name, name);
    if (name == "--sum-dtype" && find_option(command, "--activation-dtype"))
        throw UserError(
            "{} has no option {}: sums have the type of the activations; --activation-dtype sets "
            "it",
            command.name, name);
    std::vector<std::string> own, elsewhere;
    for (const OptionFacts& option : command.options)
        if (!option.is_positional && !option.long_name.empty()) own.push_back(option.long_name);
    for (const CommandFacts& other : commands)
        if (find_option(other, name)) elsewhere.push_back(other.name);
    std::string hint = did_you_mean(name, own);
    if (!elsewhere.empty()) hint = fmt::format(" (it is of {})", fmt::join(elsewhere, ", "));
    throw UserError("{} has no option {}{}; cleave {} --help-all lists those that it has",
                    command.name, name, hint, command.name);
}

// Exits the walk over one command's words.
class Words {
public:
    Words(const std::vector<CommandFacts>& commands, const CommandFacts& command,
          std::vector<std::string> words)
        : commands_(commands), command_(command), words_(std::move(words)) {}

    std::vector<std::string> run() {
        ready_.push_back(words_[0]);
        for (at_ = 1; at_ < words_.size() && words_[at_] != "--"; ++at_) take(words_[at_]);
        ready_.insert(ready_.end(), words_.begin() + static_cast<std::ptrdiff_t>(at_),
                      words_.end());
        return std::move(ready_);
    }

private:
    void take(const std::string& word) {
        const bool is_option = word.size() > 1 && word[0] == '-';
        if (!is_option) return ready_.push_back(word);
        const bool is_long = word.starts_with("--");
        const size_t equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const std::optional<std::string> value =
            equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1));
        if (const OptionFacts* option = find_option(command_, name))
            return push_option(*option, word, value);
        if (const OtherName* other = find_other_name(command_, name)) {
            if (other->here == "MODEL") return push_value(value);
            const OptionFacts* option = find_option(command_, other->here);
            return push_option(*option, std::string(other->here) + (value ? "=" + *value : ""),
                               value);
        }
        // "-oFILE", as short options may be written.
        if (!is_long && word.size() > 2 && find_option(command_, word.substr(0, 2)))
            return ready_.push_back(word);
        refuse_option(commands_, command_, name);
    }

    // With the next word where the option's value is not in its own.
    void push_option(const OptionFacts& option, const std::string& word,
                     std::optional<std::string> value) {
        ready_.push_back(word);
        if (!option.value.empty() && !value && at_ + 1 < words_.size()) {
            value = words_[++at_];
            ready_.push_back(*value);
        }
        const bool is_path = std::ranges::any_of(
            std::array{"FILE", "DIR", "PATH", "OUT"},
            [&](const char* kind) { return option.value.find(kind) != std::string::npos; });
        if (value && value->empty() && is_path)
            throw UserError("{} '': the name is empty; give a {}", option.names(), option.value);
    }
    void push_value(const std::optional<std::string>& value) {
        if (value)
            ready_.push_back(*value);
        else if (at_ + 1 < words_.size())
            ready_.push_back(words_[++at_]);
    }

    const std::vector<CommandFacts>& commands_;
    const CommandFacts& command_;
    std::vector<std::string> words_, ready_;
    size_t at_ = 0;
};

}  // namespace

std::vector<std::string> ready_arguments(const CLI::App& app, std::vector<std::string> words) {
    if (words.empty()) return words;
    if (words[0] == "help") {
        words.erase(words.begin());
        words.emplace_back("--help");
    }
    if (words[0].starts_with("-")) return words;
    const std::vector<CommandFacts> commands = commands_of(app);
    std::vector<std::string> names;
    for (const CommandFacts& command : commands) {
        if (command.name == words[0]) return Words(commands, command, std::move(words)).run();
        names.push_back(command.name);
    }
    throw UserError("no command '{}'{}; commands are {}", words[0], did_you_mean(words[0], names),
                    fmt::join(names, ", "));
}

}  // namespace cleave::tools
