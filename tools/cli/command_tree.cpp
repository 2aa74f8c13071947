// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/command_tree.h"

#include <algorithm>
#include <cstdlib>

#include "runtime/base/split.h"

namespace cleave::tools {
namespace {

// What a value is, in the word that a reader of help expects.
std::string value_word(const std::string& type) {
    if (type == "INT" || type == "UINT") return "N";
    if (type == "FLOAT") return "X";
    return type;
}

// A range that says something: one whose end is no more than "as large as you like".
bool helps(const std::string& range) {
    const size_t dots = range.find("..");
    return dots != std::string::npos && std::atof(range.c_str() + dots + 2) <= 65535;
}

constexpr size_t kMostWords = 30;  // characters of choices that stand in place of a value

// CLI11's "TEXT:{a,b}" and "INT:1..9" are a type and what a validator says of itself.
void read_type(const std::string& type, OptionFacts& facts) {
    const size_t colon = type.find(':');
    facts.value = value_word(type.substr(0, colon));
    if (colon == std::string::npos) return;
    const std::string validator = type.substr(colon + 1);
    if (validator.starts_with("{") && validator.ends_with("}")) {
        facts.choices = split_at(validator.substr(1, validator.size() - 2), ',');
        std::string words = validator.substr(1, validator.size() - 2);
        std::replace(words.begin(), words.end(), ',', '|');
        if (facts.value == "TEXT") facts.value = words.size() <= kMostWords ? words : "NAME";
    } else if (helps(validator))
        facts.range = validator;
    else if (validator == "N|auto")
        facts.value = validator;
}

OptionFacts facts_of(const CLI::Option& option) {
    OptionFacts facts;
    facts.is_positional = option.get_positional();
    facts.is_required = option.get_required();
    facts.description = option.get_description();
    facts.group = option.get_group();
    if (facts.is_positional) facts.long_name = option.get_name(true, false);
    if (!option.get_lnames().empty()) facts.long_name = "--" + option.get_lnames()[0];
    if (!option.get_snames().empty()) facts.short_name = "-" + option.get_snames()[0];
    if (option.get_items_expected_min() > 0) read_type(option.get_type_name(), facts);
    return facts;
}

}  // namespace

std::string OptionFacts::names() const {
    return short_name.empty() || long_name.empty() ? short_name + long_name
                                                   : short_name + "," + long_name;
}

CommandFacts facts_of(const CLI::App& command) {
    CommandFacts facts{command.get_name(),
                       command.get_description(),
                       command.get_group(),
                       command.get_footer(),
                       {}};
    for (const bool positional : {true, false})
        for (const CLI::Option* option : command.get_options())
            if (option->get_positional() == positional) facts.options.push_back(facts_of(*option));
    return facts;
}

std::vector<CommandFacts> commands_of(const CLI::App& app) {
    std::vector<CommandFacts> commands;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        commands.push_back(facts_of(*command));
    return commands;
}

}  // namespace cleave::tools
