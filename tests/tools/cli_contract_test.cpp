// SPDX-License-Identifier: Apache-2.0
// tools/CLI.md is the command line's contract: it names each command, each option with the commands
// that take it, and the keys of each JSON output, and nothing that is not there.
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tests/tools/support/every_command.h"
#include "tools/cli/other_names.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

namespace {

using Words = std::set<std::string>;

// What `pattern` captures first, wherever it matches.
Words all_of(const std::string& text, const char* pattern) {
    Words found;
    const std::regex regex(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
        found.insert((*at)[1]);
    return found;
}

std::string contract() { return read_file(source_root() / "tools/CLI.md"); }

// From a heading to the next.
std::string section(const std::string& heading) {
    const std::string text = contract();
    const size_t begin = text.find("\n## " + heading + "\n");
    REQUIRE(begin != std::string::npos);
    return text.substr(begin, text.find("\n## ", begin + 1) - begin);
}

std::vector<std::string> lines_of(const std::string& text, const std::string& start) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);)
        if (line.starts_with(start)) lines.push_back(line);
    return lines;
}

// By command: the long and short options that the table has for it.
std::map<std::string, Words> options_of_table() {
    const Words planning{"run",    "serve", "chat",    "plan",    "inspect", "emit",
                         "export", "why",   "why-not", "what-if", "limits"};
    std::map<std::string, Words> options;
    for (const std::string& row : lines_of(section("Options"), "| `-")) {
        const size_t second = row.find(" | ");
        INFO(row);
        REQUIRE(second != std::string::npos);
        const std::string names = row.substr(0, second);
        const std::string of = row.substr(second + 3, row.find(" | ", second + 3) - second - 3);
        Words commands = all_of(of, "`([a-z-]+)`");
        if (of.find("planning") != std::string::npos)
            commands.insert(planning.begin(), planning.end());
        REQUIRE(!commands.empty());
        for (const std::string& command : commands)
            options[command].merge(all_of(names, "[ `](--?[a-z][a-z-]*)"));
    }
    return options;
}

// The keys of a schema: at the top, or everywhere in it.
void add_keys(const nlohmann::json& schema, bool deep, Words& keys) {
    if (schema.is_array())
        for (const auto& part : schema) add_keys(part, deep, keys);
    if (!schema.is_object()) return;
    for (const auto& [word, part] : schema.items()) {
        if (word == "properties")
            for (const auto& [key, value] : part.items()) {
                keys.insert(key);
                if (deep) add_keys(value, deep, keys);
            }
        else if (deep || word == "oneOf" || word == "anyOf" || word == "allOf")
            add_keys(part, deep, keys);
    }
}

}  // namespace

TEST_CASE("the contract's commands are those of the command line", "[tools]") {
    Words named;
    for (const std::string& row : lines_of(section("Commands"), "| `cleave "))
        named.merge(all_of(row, "^\\| `cleave ([a-z-]+)"));
    CHECK(named == commands_of_help());
    CHECK(named.size() >= 10);
}

TEST_CASE("the contract's options are those of each command", "[tools]") {
    std::map<std::string, Words> table = options_of_table();
    for (const std::string& command : commands_of_help()) {
        if (command == "help") continue;  // with --help-all it shows every command
        std::string help = run_cleave({command, "--help-all"}).output;
        help.resize(std::min(help.size(), help.find("\nNames of other tools")));
        Words shown = all_of(help, "\n  (--[a-z][a-z-]*)");
        shown.merge(all_of(help, "\n  (-[a-z]),"));
        shown.merge(all_of(help, "\n  -[a-z],(--[a-z-]+)"));
        shown.erase("-h");
        shown.erase("--help");
        shown.erase("--help-all");
        INFO(command);
        CHECK(table[command] == shown);
    }
}

TEST_CASE("the contract has the names of other tools that commands take", "[tools]") {
    const std::string text = section("Names of other tools");
    size_t rows = 0, types = 0;
    for (const tools::OtherName& name : tools::other_names()) {
        INFO(name.name);
        CHECK(text.find(fmt::format("| `{}` | {} | `{}` |", name.name, name.whose, name.here)) !=
              std::string::npos);
    }
    for (const tools::OtherType& type : tools::other_types()) {
        INFO(type.name);
        CHECK(text.find(fmt::format("`{}` ({}: {})", type.name, type.whose, type.dtype)) !=
              std::string::npos);
    }
    rows = lines_of(text, "| `").size();
    for (size_t at = text.find(" ("); at != std::string::npos; at = text.find(" (", at + 1))
        types += text[at - 1] == '`';
    CHECK(rows == tools::other_names().size());
    CHECK(types == tools::other_types().size());
}

TEST_CASE("the contract names every schema, and the keys at the top of each", "[tools]") {
    std::string text = section("JSON that others read");
    text = std::regex_replace(text, std::regex("\n  +"), " ");
    Words schemas;
    for (const std::string& line : lines_of(text, "- ")) {
        // A line may name two schemas: each one's keys are behind its name.
        const std::regex name("`(tools/schema/[a-z_]+\\.schema\\.json)`");
        Words behind;
        nlohmann::json of_line;
        for (std::sregex_iterator at(line.begin(), line.end(), name), end; at != end; ++at) {
            schemas.insert((*at)[1]);
            std::ifstream file(source_root() / (*at)[1].str());
            INFO((*at)[1]);
            REQUIRE(file.good());
            of_line.push_back(nlohmann::json::parse(file));
        }
        INFO(line);
        REQUIRE(!of_line.empty());
        const Words named = all_of(line, "`\"([a-z_0-9]+)\"`");
        Words at_top, anywhere;
        for (const auto& schema : of_line) {
            add_keys(schema, false, at_top);
            add_keys(schema, true, anywhere);
        }
        anywhere.insert("cpu");  // a value of the cost graph's assignment
        for (const std::string& key : at_top) {
            INFO(key);
            CHECK(named.count(key) == 1);
        }
        for (const std::string& key : named) {
            INFO(key);
            CHECK(anywhere.count(key) == 1);
        }
    }
    Words present;
    for (const auto& entry : fs::directory_iterator(source_root() / "tools/schema"))
        present.insert("tools/schema/" + entry.path().filename().string());
    CHECK(schemas == present);
}
