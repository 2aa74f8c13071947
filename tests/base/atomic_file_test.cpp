// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/atomic_file.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "runtime/base/descriptor.h"
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

TEST_CASE("an atomic file whose process is killed leaves what was there, and nothing else",
          "[base]") {
    test::TemporaryFolder folder;
    if (!Descriptor(::open(folder.path().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)))
        CLEAVE_SKIP("the file system has no files without a name");
    fs::path path = folder.path() / "plan";
    std::ofstream(path) << "old";
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        AtomicFile file(path);
        file.stream() << std::string(1 << 20, 'x');
        file.stream().flush();
        ::raise(SIGKILL);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
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

TEST_CASE("an atomic file's temporary has a name of its own, and the mode that was asked for",
          "[base]") {
    test::TemporaryFolder folder;
    {
        std::vector<std::unique_ptr<AtomicFile>> files;
        for (int i = 0; i < 50; ++i) {
            files.push_back(std::make_unique<AtomicFile>(folder.path() / "plan", 0600));
            REQUIRE(!files.back()->error());
            REQUIRE(!files.back()->close());
        }
        CHECK(files_in(folder.path()) == 50);
        CHECK(!files.back()->commit());
    }
    CHECK(files_in(folder.path()) == 1);
    struct stat status{};
    REQUIRE(::stat((folder.path() / "plan").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    // What takes a file's place has its mode.
    AtomicFile again(folder.path() / "plan", 0644);
    REQUIRE(!again.commit());
    REQUIRE(::stat((folder.path() / "plan").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("an atomic file replaces a link, not what it leads to", "[base]") {
    test::TemporaryFolder folder;
    const fs::path victim = folder.path() / "victim", path = folder.path() / "plan";
    std::ofstream(victim) << "old";
    fs::create_symlink(victim, path);
    AtomicFile file(path);
    file.stream() << "new";
    CHECK(!file.commit());
    CHECK(contents(victim) == "old");
    CHECK(contents(path) == "new");
    CHECK(fs::is_regular_file(fs::symlink_status(path)));
}

TEST_CASE("an atomic file keeps the first error of a write, and what was there", "[base]") {
    test::TemporaryFolder folder;
    const fs::path path = folder.path() / "plan";
    std::ofstream(path) << "old";
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlimit small{4096, before.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::error_code error;
    {
        AtomicFile file(path);
        file.stream() << std::string(1 << 20, 'x');
        error = file.commit();
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(error == std::errc::file_too_large);
    CHECK(contents(path) == "old");
    CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("an atomic file is written in any order", "[base]") {
    test::TemporaryFolder folder;
    const fs::path path = folder.path() / "plan";
    AtomicFile file(path);
    file.stream().seekp(4);
    file.stream() << "after";
    file.stream().seekp(0);
    file.stream() << "1234";
    CHECK(!file.commit());
    CHECK(contents(path) == "1234after");
}

TEST_CASE("an atomic file writes a device or a pipe where it is, and replaces neither", "[base]") {
    test::TemporaryFolder folder;
    const fs::path pipe = folder.path() / "pipe", link = folder.path() / "link";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    fs::create_symlink(pipe, link);  // as /dev/stdout is one
    for (const fs::path& path : {pipe, link}) {
        const Descriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        REQUIRE(reader);
        {
            AtomicFile file(path);
            file.stream() << "all of it";
            CHECK(!file.commit());
        }
        std::array<char, 64> bytes{};
        const ssize_t read = ::read(reader.get(), bytes.data(), bytes.size());
        REQUIRE(read > 0);
        CHECK(std::string(bytes.data(), static_cast<size_t>(read)) == "all of it");
        {
            AtomicFile file(path);
            file.stream() << "behind";
            file.stream().seekp(0);
            CHECK(file.commit() == std::errc::invalid_seek);
        }
    }
    CHECK(fs::is_fifo(pipe));
    CHECK(fs::is_symlink(link));
    CHECK(files_in(folder.path()) == 2);
    AtomicFile full("/dev/full");
    full.stream() << "no room";
    CHECK(full.commit() == std::errc::no_space_on_device);
    CHECK(fs::is_character_file("/dev/full"));
}

TEST_CASE("an atomic file is none in the place of a socket", "[base]") {
    test::TemporaryFolder folder;
    const fs::path path = folder.path() / "socket";
    const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    REQUIRE(path.string().size() < sizeof name.sun_path);
    path.string().copy(name.sun_path, sizeof name.sun_path - 1);
    REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
    AtomicFile file(path);
    CHECK(file.error());
    CHECK(file.commit() == file.error());
    CHECK(fs::is_socket(path));
    CHECK(files_in(folder.path()) == 1);
}
