// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/atomic_file.h"

#include <iterator>

#include "tests/support/test.h"

using namespace cleave;
namespace fs = std::filesystem;

namespace {

std::string contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int files_in(const fs::path& folder) {
    return static_cast<int>(std::distance(fs::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("an atomic file has its name only once it is committed, and then whole", "[base]") {
    test::TemporaryFolder folder;
    fs::path path = folder.path() / "plan";
    AtomicFile file(path);
    file.stream() << "complete";
    CHECK(!fs::exists(path));
    CHECK(!file.commit());
    CHECK(contents(path) == "complete");
    CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("an atomic file that is not committed leaves what was there, and nothing else",
          "[base]") {
    test::TemporaryFolder folder;
    fs::path path = folder.path() / "plan";
    std::ofstream(path) << "old";
    {
        AtomicFile(path).stream() << "half";
    }
    CHECK(contents(path) == "old");
    CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("an atomic file reports the first error, and replaces no folder", "[base]") {
    test::TemporaryFolder folder;
    AtomicFile nowhere(folder.path() / "absent" / "plan");
    CHECK(nowhere.error() == std::errc::no_such_file_or_directory);
    CHECK(nowhere.commit() == std::errc::no_such_file_or_directory);
    fs::create_directories(folder.path() / "taken" / "inside");
    {
        AtomicFile file(folder.path() / "taken");
        CHECK(!file.error());
        CHECK(file.commit());
    }
    CHECK(fs::is_directory(folder.path() / "taken"));
    CHECK(files_in(folder.path()) == 1);
}
