// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/path_state.h"

#include <filesystem>
#include <fstream>

#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

TEST_CASE("what cannot be looked at is an error with the system's reason, and not absent",
          "[base]") {
    const TemporaryFolder folder;
    const fs::path loop = folder.path() / "loop", too_long = folder.path() / std::string(300, 'a');
    fs::create_symlink("loop", loop);
    for (const auto& [path, reason] : {std::pair(loop, "Too many levels of symbolic links"),
                                       std::pair(too_long, "File name too long")}) {
        const auto check = [&](auto look) {
            CHECK(user_error([&] { look(path); }) == path.string() + ": " + reason);
        };
        check(type_at);
        check(is_there);
        check(is_folder);
        check(is_file);
        check(size_at);
    }
}

TEST_CASE("what is at a path is of one type, and only a file has a size", "[base]") {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "file", link = folder.path() / "link";
    std::ofstream(file) << "12345";
    fs::create_symlink("file", link);
    for (const fs::path& path : {file, link}) {
        CHECK(is_file(path));
        CHECK_FALSE(is_folder(path));
        CHECK(size_at(path) == 5);
    }
    for (const fs::path& path : {folder.path(), fs::path("/dev/null")}) {
        CHECK(is_there(path));
        CHECK_FALSE(is_file(path));
        CHECK(is_folder(path) == (path == folder.path()));
        CHECK_FALSE(size_at(path));
    }
    for (const fs::path& path : {folder.path() / "none", file / "below", fs::path()}) {
        CHECK_FALSE(is_there(path));
        CHECK_FALSE(is_folder(path));
        CHECK_FALSE(is_file(path));
        CHECK_FALSE(size_at(path));
    }
}
