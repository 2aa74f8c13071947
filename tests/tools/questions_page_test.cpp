// SPDX-License-Identifier: Apache-2.0
// The ten questions of tools/QUESTIONS.md: the command under each gives the answer that it has.
#include <fstream>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

constexpr std::string_view kCommand = "    $ cleave ";

// Words as a shell has them: quotes hold spaces together.
std::vector<std::string> words_of(std::string_view line) {
    std::vector<std::string> words;
    bool quoted = false, any = false;
    std::string word;
    for (const char c : line) {
        if (c == '\'') {
            quoted = !quoted;
            any = true;
        } else if (c == ' ' && !quoted) {
            if (any) words.push_back(word);
            word.clear();
            any = false;
        } else {
            word += c;
            any = true;
        }
    }
    if (any) words.push_back(word);
    return words;
}

// One space for each run of white space.
std::string in_one_line(const std::string& text) {
    std::istringstream in(text);
    std::string line;
    for (std::string word; in >> word;) line += (line.empty() ? "" : " ") + word;
    return line;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

// What the command prints first; behind "| grep WORD" the lines that have the word.
std::string answer_to(std::string_view command, const std::filesystem::path& folder) {
    const size_t pipe = command.find(" | grep ");
    std::vector<std::string> words = words_of(command.substr(0, pipe));
    for (std::string& word : words)
        if (word.ends_with(".plan")) word = (folder / word).string();
    const CommandResult result = run_cleave(words);
    INFO(command << "\n" << result.error);
    REQUIRE(result.exit_code == 0);
    const std::string wanted =
        pipe == std::string_view::npos ? "" : words_of(command.substr(pipe + 8)).front();
    std::string answer;
    for (const std::string& line : lines_of(result.output)) {
        if (line.empty()) break;
        if (line.find(wanted) != std::string::npos) answer += line + "\n";
    }
    return in_one_line(answer);
}

// As the page has it: lines of at most 100 characters behind four spaces.
std::string as_written(const std::string& answer) {
    std::string text, line;
    std::istringstream in(answer);
    for (std::string word; in >> word;) {
        if (4 + line.size() + 1 + word.size() > 100) {
            text += "    " + line + "\n";
            line.clear();
        }
        line += (line.empty() ? "" : " ") + word;
    }
    return text + (line.empty() ? "" : "    " + line + "\n");
}

}  // namespace

TEST_CASE("each of the ten questions has the answer that its page says", "[tools]") {
    const TemporaryFolder folder;
    const auto page = source_root() / "tools/QUESTIONS.md";
    const std::vector<std::string> lines = lines_of(read_file(page));
    std::string written;
    int questions = 0, answers = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
        questions += lines[i].starts_with("## ");
        const std::string& line = lines[i];
        written += line + "\n";
        if (!line.starts_with(kCommand)) continue;
        std::string said;
        while (i + 1 < lines.size() && lines[i + 1].starts_with("    ") &&
               !lines[i + 1].starts_with(kCommand))
            said += lines[++i] + "\n";
        const std::string answer = answer_to(line.substr(kCommand.size()), folder.path());
        if (line.starts_with(std::string(kCommand) + "plan")) continue;
        INFO(line);
        CHECK(!answer.empty());
        if (!std::getenv("UPDATE_GOLDEN")) CHECK(in_one_line(said) == answer);
        written += as_written(answer);
        ++answers;
    }
    CHECK(questions == 10);
    CHECK(answers >= 20);
    if (std::getenv("UPDATE_GOLDEN")) std::ofstream(page) << written;
}

}  // namespace cleave::test
