// SPDX-License-Identifier: Apache-2.0
// Texts of the libraries name options and calls (`$batch`), never flags or commands: those who read
// them may have no command line. tools/ spells the names.
#include <algorithm>
#include <regex>
#include <set>

#include "tests/support/command.h"
#include "tests/support/test.h"
#include "tools/cli/spelling.h"

using namespace cleave;
using namespace cleave::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// The string literals of a source, adjacent ones joined, escapes as written.
class Literals {
public:
    explicit Literals(std::string text) : text_(std::move(text)) {}

    std::vector<std::string> read() {
        while (at_ < text_.size()) {
            if (starts("//")) {
                skip_behind("\n");
            } else if (starts("/*")) {
                skip_behind("*/");
            } else if (starts("R\"")) {
                raw();
            } else if (text_[at_] == '"') {
                quoted('"');
            } else if (text_[at_] == '\'' && !(at_ > 0 && std::isalnum(text_[at_ - 1]) != 0)) {
                const size_t before = literals_.size();
                quoted('\'');
                literals_.resize(before);
            } else {
                joins_ = joins_ && std::isspace(text_[at_]) != 0;
                ++at_;
            }
        }
        return std::move(literals_);
    }

private:
    bool starts(std::string_view with) const { return text_.compare(at_, with.size(), with) == 0; }
    void skip_behind(std::string_view end) {
        const size_t found = text_.find(end, at_);
        at_ = found == std::string::npos ? text_.size() : found + end.size();
    }
    void add(std::string literal) {
        if (joins_ && !literals_.empty())
            literals_.back() += literal;
        else
            literals_.push_back(std::move(literal));
        joins_ = true;
    }
    void quoted(char quote) {
        const size_t first = ++at_;
        while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
        if (quote == '"') add(text_.substr(first, at_ - first));
        ++at_;
    }
    void raw() {
        const size_t open = text_.find('(', at_);
        const std::string end = ")" + text_.substr(at_ + 2, open - at_ - 2) + "\"";
        const size_t close = text_.find(end, open);
        add(text_.substr(open + 1, close - open - 1));
        at_ = close + end.size();
    }

    std::string text_;
    size_t at_ = 0;
    bool joins_ = false;
    std::vector<std::string> literals_;
};

struct Text {
    std::string file, literal;
};

std::vector<Text> library_texts() {
    std::vector<Text> texts;
    for (const char* folder : {"planner", "codegen", "runtime", "importer", "models"})
        for (const auto& entry : fs::recursive_directory_iterator(source_root() / folder)) {
            const std::string file = entry.path().lexically_relative(source_root()).string();
            const std::string extension = entry.path().extension().string();
            if ((extension != ".cpp" && extension != ".h") || file.find("templates/") == 8)
                continue;
            for (std::string& literal : Literals(read_file(entry.path())).read())
                // A script that an export writes has flags and variables of its own.
                if (!literal.starts_with("#!")) texts.push_back({file, std::move(literal)});
        }
    return texts;
}

// What `pattern` captures, wherever it is found.
std::set<std::string> all_of(const std::string& text, const std::regex& pattern) {
    std::set<std::string> found;
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at)
        found.insert((*at)[1]);
    return found;
}

std::set<std::string> commands() {
    return all_of(run_cleave({"--help"}).output, std::regex("\n  ([a-z]+) +[^ ]"));
}

std::set<std::string> flags() {
    std::set<std::string> flags;
    for (const std::string& command : commands()) {
        std::string help = run_cleave({command, "--help-all"}).output;
        help.resize(std::min(help.size(), help.find("\nNames of other tools")));
        flags.merge(all_of(help, std::regex("(--[a-z-]+)")));
    }
    return flags;
}

}  // namespace

TEST_CASE("no text of a library names a flag or a command", "[tools]") {
    const std::set<std::string> known = flags(), verbs = commands();
    REQUIRE(known.count("--tp") == 1);
    REQUIRE(verbs.count("plan") == 1);
    const std::regex flag("(?:^|[^a-z-])(--[a-z]+(?:-[a-z]+)*)"), command("cleave ([a-z]+)\\b");
    size_t count = 0;
    for (const Text& text : library_texts()) {
        ++count;
        INFO(text.file << ": \"" << text.literal << "\"");
        // An argument of another tool, which an export writes or a compiler takes.
        const bool argument = (text.file.starts_with("planner/export/") ||
                               text.file.starts_with("codegen/compile/")) &&
                              text.literal.starts_with("--") &&
                              text.literal.find(' ') == std::string::npos;
        for (const std::string& one : all_of(text.literal, flag))
            CHECK((argument || known.count(one) == 0));
        for (const std::string& one : all_of(text.literal, command))
            CHECK((text.literal == "cleave plan" || verbs.count(one) == 0));  // a plan file's magic
    }
    CHECK(count > 1000);
}

TEST_CASE("every name in a library's text has a spelling, and every spelling a text", "[tools]") {
    std::set<std::string> used;
    for (const Text& text : library_texts())
        for (const std::string& name : all_of(text.literal, std::regex("\\$([a-z_]+)"))) {
            INFO(text.file << ": " << text.literal);
            CHECK(std::ranges::any_of(tools::spellings(),
                                      [&](const auto& known) { return known.name == name; }));
            used.insert(name);
        }
    std::set<std::string> known;
    const std::set<std::string> all_flags = flags();
    for (const tools::Spelling& spelling : tools::spellings()) {
        INFO(spelling.name);
        CHECK(known.insert(std::string(spelling.name)).second);
        const std::string command(spelling.command);
        for (const std::string& flag : all_of(command, std::regex("(--[a-z-]+)")))
            CHECK(all_flags.count(flag) == 1);
        CHECK(spelling.api.find("--") == std::string_view::npos);
    }
    CHECK(std::ranges::is_sorted(tools::spellings(), {}, &tools::Spelling::name));
    CHECK(used == known);
}

TEST_CASE("a name is spelled for its reader, and other words with a dollar are left", "[tools]") {
    CHECK(tools::spell_for_command_line("lower $batch, or $prefill_chunk 512") ==
          "lower --batch, or --prefill-chunk 512");
    CHECK(tools::spell_for_api("$pins 'x=y': $save_plan") == "pins 'x=y': cleave_plan_save");
    for (const char* text : {"", "$", "$HOME/model.onnx", "$batches", "a $ b", "$model$"}) {
        CHECK(tools::spell_for_command_line(text) == text);
        CHECK(tools::spell_for_api(text) == text);
    }
}

TEST_CASE("the command line's error names the flags of the library's options", "[tools]") {
    const CommandResult r =
        run_cleave({"plan", "stories-260k", "--devices", "host[0-2]", "--tp", "2"});
    CHECK(r.exit_code == 1);
    CHECK_THAT(r.error, Contains("--tp 2 does not divide 3 devices") && !Contains("$"));
}
