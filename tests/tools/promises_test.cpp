// SPDX-License-Identifier: Apache-2.0
// tests/PROMISES.md names tests that exist.
#include <filesystem>
#include <regex>
#include <set>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

namespace fs = std::filesystem;

// Names of TEST_CASEs, whose literals may be written in several pieces.
std::set<std::string> names_of_tests() {
    const std::regex begins(R"re(TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+))re");
    const std::regex piece(R"re("((?:[^"\\]|\\.)*)")re");
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(source_root() / "tests")) {
        if (entry.path().extension() != ".cpp") continue;
        const std::string text = read_file(entry.path());
        for (std::sregex_iterator it(text.begin(), text.end(), begins), end; it != end; ++it) {
            const std::string pieces = (*it)[1];
            std::string name;
            for (std::sregex_iterator p(pieces.begin(), pieces.end(), piece); p != end; ++p)
                name += (*p)[1];
            names.insert(name);
        }
    }
    return names;
}

}  // namespace

TEST_CASE("every test that a promise names is there", "[tools]") {
    const std::set<std::string> names = names_of_tests();
    REQUIRE(names.size() > 500);
    const std::string page = read_file(source_root() / "tests" / "PROMISES.md");
    const std::regex quoted("`([^`]+)`");
    int named = 0;
    for (std::sregex_iterator it(page.begin(), page.end(), quoted), end; it != end; ++it) {
        const std::string name = (*it)[1];
        if (name.starts_with("tools/") || name.starts_with("python3 ") ||
            name.find(' ') == std::string::npos)
            continue;
        INFO(name);
        CHECK(names.contains(name));
        ++named;
    }
    CHECK(named > 30);
}

}  // namespace cleave::test
