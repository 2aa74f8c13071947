// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/file_set.h"

#include <fstream>

#include "runtime/base/errors.h"
#include "tests/support/test.h"

using namespace cleave;
namespace fs = std::filesystem;

TEST_CASE("files of a set appear together, in folders that are made for them", "[base]") {
    const test::TemporaryFolder folder;
    const fs::path deep = folder.path() / "a" / "b";
    FileSet files;
    files.make_folder(deep);
    files.add(deep / "one", [](std::ostream& to) { to << "1"; });
    files.add(deep / "two", [](std::ostream& to) { to << "2"; });
    CHECK_FALSE(fs::exists(deep / "one"));
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
