// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/folder.h"

#include <filesystem>
#include <fstream>

#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace fs = std::filesystem;

TEST_CASE("a folder's names are those that lie in it, in order, and a missing one says why",
          "[base]") {
    const TemporaryFolder folder;
    for (const char* name : {"b", "a.onnx", ".hidden", "with\nline"})
        std::ofstream(folder.path() / name) << "x";
    fs::create_directory(folder.path() / "c");
    fs::create_symlink("nowhere", folder.path() / "link");

    std::error_code error = std::make_error_code(std::errc::io_error);
    CHECK(names_in(folder.path().string(), error) ==
          std::vector<std::string>{".hidden", "a.onnx", "b", "c", "link", "with\nline"});
    CHECK_FALSE(error);
    CHECK(names_in((folder.path() / "c").string(), error).empty());
    CHECK_FALSE(error);
    CHECK(names_in((folder.path() / "none").string(), error).empty());
    CHECK(error == std::errc::no_such_file_or_directory);
    CHECK(names_in((folder.path() / "b").string(), error).empty());
    CHECK(error == std::errc::not_a_directory);
    CHECK(names_in((folder.path() / "none").string()).empty());
}

TEST_CASE("what is no folder has no names, and a folder that cannot be read is an error",
          "[base]") {
    const TemporaryFolder folder;
    std::ofstream(folder.path() / "file") << "x";
    CHECK(names_if_folder(folder.path()) == std::vector<std::string>{"file"});
    CHECK(names_if_folder(folder.path() / "file").empty());
    CHECK(names_if_folder(folder.path() / "none").empty());
    fs::create_symlink("loop", folder.path() / "loop");
    CHECK_THAT(user_error([&] { names_if_folder(folder.path() / "loop"); }),
               Catch::Contains("loop: cannot read the folder: Too many levels"));
}
