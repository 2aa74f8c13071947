// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_set.h"

#include <fstream>
#include <set>
#include <sstream>

#include "runtime/base/errors.h"
#include "tests/support/test.h"

using namespace cleave;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("files of a set appear together, in folders that are made for them", "[base]") {
    const test::TemporaryFolder folder;
    const fs::path deep = folder.path() / "a" / "b";
    FileSet files;
    files.make_folder(deep);
    files.add(deep / "one", [](std::ostream& to) { to << "1"; });
    files.add(deep / "two", [](std::ostream& to) { to << "2"; });
    CHECK(fs::is_empty(deep));  // nothing has a name that a killed process would leave
    files.commit();
    CHECK(fs::file_size(deep / "one") == 1);
    CHECK(fs::file_size(deep / "two") == 1);
}

TEST_CASE("a set that is not committed leaves no file and no folder", "[base]") {
    const test::TemporaryFolder folder;
    const auto fail = [](std::ostream&) { throw UserError("no more"); };
    CHECK_THROWS_AS(
        [&] {
            FileSet files;
            files.make_folder(folder.path() / "a" / "b");
            files.add(folder.path() / "a" / "one", [](std::ostream& to) { to << "1"; });
            files.add(folder.path() / "a" / "b" / "two", fail);
            files.commit();
        }(),
        UserError);
    CHECK(fs::is_empty(folder.path()));

    fs::create_directory(folder.path() / "kept");
    {
        FileSet files;
        files.make_folder(folder.path() / "kept" / "made");
    }
    CHECK(fs::exists(folder.path() / "kept"));
    CHECK(fs::is_empty(folder.path() / "kept"));

    std::ofstream(folder.path() / "file") << "x";
    FileSet files;
    CHECK_THROWS_AS(files.make_folder(folder.path() / "file" / "below"), UserError);
    CHECK_THROWS_AS(files.make_folder(folder.path() / "file"), UserError);
}

TEST_CASE("where one file of a set cannot appear none does, and what was there stays", "[base]") {
    const test::TemporaryFolder folder;
    const fs::path& in = folder.path();
    std::ofstream(in / "old") << "before";
    std::ofstream(in / "weights") << "w";
    fs::create_symlink("weights", in / "link");
    fs::create_directories(in / "taken" / "by a folder");
    {
        FileSet files;
        files.add(in / "new", [](std::ostream& to) { to << "1"; });
        files.add(in / "old", [](std::ostream& to) { to << "2"; });
        files.add(in / "link", [](std::ostream& to) { to << "3"; });
        files.link(in / "hard", in / "weights", "copy it");
        files.add(in / "taken", [](std::ostream& to) { to << "4"; });
        CHECK_THROWS_AS(files.commit(), UserError);
    }
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(in)) names.insert(entry.path().filename());
    CHECK(names == std::set<std::string>{"link", "old", "taken", "weights"});
    CHECK(text_of(in / "old") == "before");
    CHECK(fs::read_symlink(in / "link") == "weights");
    {
        FileSet files;
        files.add(in / "old", [](std::ostream& to) { to << "2"; });
        files.link(in / "hard", in / "weights", "copy it");
        files.commit();
    }
    CHECK(text_of(in / "old") == "2");
    CHECK(fs::hard_link_count(in / "weights") == 2);
    CHECK(std::distance(fs::directory_iterator(in), {}) == 5);
}

TEST_CASE("a set of more files than a process may open appears whole", "[base]") {
    const test::TemporaryFolder folder;
    FileSet files;
    constexpr int kMany = 1100;
    for (int i = 0; i < kMany; ++i)
        files.add(folder.path() / std::to_string(i), [](std::ostream& to) { to << "x"; });
    files.commit();
    CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == kMany);
}
