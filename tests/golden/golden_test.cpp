// SPDX-License-Identifier: Apache-2.0
// Text in, one pass, text out. A case is tests/golden/PASS/CASE.txt: a line that says what it
// shows, the input, a line of four dashes, the output. UPDATE_GOLDEN=1 writes the outputs anew.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/golden/passes.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

constexpr std::string_view kDashes = "\n----\n";

struct GoldenCase {
    std::filesystem::path path;
    std::string input, expected;  // input: all before the dashes

    std::string name() const { return path.parent_path().filename() / path.stem(); }
};

GoldenCase read_case(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    const std::string all = text.str();
    const size_t dashes = all.find(kDashes);
    if (dashes == std::string::npos) return {path, all, ""};
    return {path, all.substr(0, dashes + 1), all.substr(dashes + kDashes.size())};
}

std::vector<GoldenCase> cases_of(const Pass& pass) {
    std::vector<GoldenCase> cases;
    const auto folder = source_root() / "tests/golden" / pass.name;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        cases.push_back(read_case(entry.path()));
    std::sort(cases.begin(), cases.end(),
              [](const GoldenCase& a, const GoldenCase& b) { return a.path < b.path; });
    return cases;
}

std::string run(const Pass& pass, const GoldenCase& c) {
    const size_t title = c.input.find('\n') + 1;  // blank for ONNX, which knows no such comment
    return pass.run(std::string(title - 1, ' ') + c.input.substr(title - 1), c.name());
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

// What differs, between equal lines before and behind: "" where nothing does.
std::string difference(const std::string& expected, const std::string& got) {
    if (expected == got) return "";
    const std::vector<std::string> a = lines_of(expected), b = lines_of(got);
    size_t begin = 0, end = 0;
    while (begin < std::min(a.size(), b.size()) && a[begin] == b[begin]) ++begin;
    while (end < std::min(a.size(), b.size()) - begin &&
           a[a.size() - 1 - end] == b[b.size() - 1 - end])
        ++end;
    std::string text = "output line " + std::to_string(begin + 1) + ":\n";
    constexpr size_t kShown = 8;
    for (const auto& [lines, sign] : {std::pair(&a, "- "), std::pair(&b, "+ ")}) {
        for (size_t i = begin; i < std::min(lines->size() - end, begin + kShown); ++i)
            text += sign + (*lines)[i] + "\n";
        if (lines->size() - end > begin + kShown) text += std::string(sign) + "..\n";
    }
    return text;
}

bool updates() {
    const char* update = std::getenv("UPDATE_GOLDEN");
    return update && std::string(update) == "1";
}

// Every number of a text, one higher, one at a time.
std::vector<std::string> with_one_number_changed(const std::string& text) {
    std::vector<std::string> changed;
    for (size_t at = text.find_first_of("0123456789"); at != std::string::npos;) {
        const size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
        std::string other = text;
        other[end - 1] = other[end - 1] == '9' ? '8' : static_cast<char>(other[end - 1] + 1);
        changed.push_back(std::move(other));
        at = text.find_first_of("0123456789", end);
    }
    return changed;
}

}  // namespace

TEST_CASE("each pass turns its cases into what is written below them", "[golden]") {
    for (const Pass& pass : passes())
        for (const GoldenCase& c : cases_of(pass)) {
            INFO(c.name());
            CHECK(c.input.starts_with("# "));
            const std::string got = run(pass, c);
            CHECK(run(pass, c) == got);  // deterministic
            const std::string differs = difference(c.expected, got);
            if (differs.empty()) continue;
            if (updates())
                std::ofstream(c.path, std::ios::binary) << c.input << kDashes.substr(1) << got;
            else
                FAIL_CHECK(c.name() << " gives something else (-: expected, +: now), " << differs
                                    << "UPDATE_GOLDEN=1 writes it anew");
        }
}

TEST_CASE("every pass has cases, small enough to be read", "[golden]") {
    for (const Pass& pass : passes()) {
        const std::vector<GoldenCase> cases = cases_of(pass);
        CHECK(cases.size() >= 2);
        for (const GoldenCase& c : cases) {
            INFO(c.name());
            CHECK(lines_of(c.input + c.expected).size() <= 80);
        }
    }
}

TEST_CASE("any number that changes in a golden is seen", "[golden]") {
    for (const Pass& pass : passes())
        for (const GoldenCase& c : cases_of(pass))
            for (const std::string& other : with_one_number_changed(c.expected)) {
                const std::string differs = difference(other, c.expected);
                INFO(c.name() << "\n" << differs);
                CHECK(differs.find("\n- ") != std::string::npos);
                CHECK(differs.find("\n+ ") != std::string::npos);
            }
}

TEST_CASE("a pass that decides otherwise is seen in its golden", "[golden]") {
    // As if it had changed: the same pass, with one number of its input another.
    for (const Pass& pass : passes()) {
        int seen = 0;
        for (const GoldenCase& c : cases_of(pass))
            for (const std::string& input : with_one_number_changed(c.input)) {
                GoldenCase other = c;
                other.input = input;
                try {
                    seen += !difference(c.expected, run(pass, other)).empty();
                } catch (const UserError&) {      // NOLINT(bugprone-empty-catch)
                } catch (const InternalError&) {  // NOLINT(bugprone-empty-catch)
                }
            }
        INFO(pass.name);
        CHECK(seen > 0);
    }
}

}  // namespace cleave::test
