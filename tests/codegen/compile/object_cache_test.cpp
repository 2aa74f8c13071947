// SPDX-License-Identifier: Apache-2.0
// Objects are code: what others could have written is never run.
#include "codegen/compile/object_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/test.h"

namespace cleave::codegen {
namespace {

namespace fs = std::filesystem;

CompiledKernel small_kernel() {
    CompiledKernel kernel;
    kernel.name = "k";
    kernel.compiler = "test";
    kernel.object.assign(64, std::byte{0x90});
    return kernel;
}

mode_t mode_of(const fs::path& path) {
    struct stat status{};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 07777;
}

// Until the end of the scope.
class Umask {
public:
    explicit Umask(mode_t mask) : before_(::umask(mask)) {}
    ~Umask() { ::umask(before_); }

private:
    mode_t before_;
};

}  // namespace

TEST_CASE("the cache's folders and entries are the user's alone, whatever the umask", "[codegen]") {
    const test::TemporaryFolder folder;
    const Umask none(0);
    const ObjectCache cache((folder.path() / "cleave" / "kernels").string());
    cache.store("key", small_kernel());
    REQUIRE(why_not_cached((folder.path() / "cleave" / "kernels").string()) == "");
    REQUIRE(cache.find("key", "k"));
    CHECK(mode_of(folder.path() / "cleave") == 0700);
    CHECK(mode_of(folder.path() / "cleave" / "kernels") == 0700);
    CHECK(mode_of(cache.path("key")) == 0600);
}

TEST_CASE("a folder that others may write is no cache, and the reason is told", "[codegen]") {
    const test::TemporaryFolder folder;
    const fs::path kernels = folder.path() / "kernels";
    ObjectCache(kernels.string()).store("key", small_kernel());
    for (const mode_t mode : {mode_t{0770}, mode_t{0777}}) {
        REQUIRE(::chmod(kernels.c_str(), mode) == 0);
        const ObjectCache cache(kernels.string());
        CHECK_THAT(why_not_cached(kernels.string()), Catch::Contains(kernels.string()) &&
                                                         Catch::Contains("writable by others") &&
                                                         Catch::Contains("chmod go-w"));
        CHECK_FALSE(cache.find("key", "k"));
        cache.store("other", small_kernel());
        CHECK_FALSE(fs::exists(cache.path("other")));
    }
    REQUIRE(::chmod(kernels.c_str(), 0755) == 0);
    CHECK(ObjectCache(kernels.string()).find("key", "k"));
    // Who may write the folder above could put another one, or a link, in its place.
    REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
    CHECK_THAT(why_not_cached(kernels.string()),
               Catch::StartsWith(folder.path().string() + " is writable by others"));
    CHECK_FALSE(ObjectCache(kernels.string()).find("key", "k"));
    // At any height, and past a link.
    const fs::path deep = folder.path() / "a" / "b" / "kernels";
    const test::TemporaryFolder elsewhere;
    fs::create_directories(deep);
    fs::create_directory_symlink(deep, elsewhere.path() / "link");
    for (const fs::path& path : {deep, elsewhere.path() / "link"})
        CHECK_THAT(why_not_cached(path.string()),
                   Catch::StartsWith(folder.path().string() + " is writable by others"));
    REQUIRE(::chmod(folder.path().c_str(), 01777) == 0);  // its own entries alone
    CHECK(ObjectCache(kernels.string()).find("key", "k"));
    if (::geteuid() != 0) return;
    // But its owner may rename everything.
    REQUIRE(::chown(folder.path().c_str(), 65534, 65534) == 0);
    CHECK_THAT(why_not_cached(kernels.string()), Catch::StartsWith(folder.path().string()));
    REQUIRE(::chown(folder.path().c_str(), 0, 0) == 0);
    CHECK(why_not_cached(kernels.string()) == "");
    REQUIRE(::chown(kernels.c_str(), 65534, 65534) == 0);
    const ObjectCache theirs(kernels.string());
    CHECK_THAT(why_not_cached(kernels.string()), Catch::Contains("another user's"));
    CHECK_FALSE(theirs.find("key", "k"));
}

TEST_CASE("a kernel of another text is not taken, whatever its digest", "[codegen]") {
    const test::TemporaryFolder folder;
    const ObjectCache cache(folder.path().string());
    cache.store("key", small_kernel(), "text of one");
    CHECK(cache.find("key", "k", "text of one"));
    CHECK_FALSE(cache.find("key", "k", "text of two"));
    CHECK_FALSE(cache.find("key", "k", "of one"));
    CHECK_FALSE(cache.find("key", "k"));
}

TEST_CASE("a cache that can keep nothing says so", "[codegen]") {
    const test::TemporaryFolder folder;
    CHECK(why_not_kept((folder.path() / "a" / "kernels").string()) == "");
    const fs::path file = folder.path() / "file";
    std::ofstream(file) << "x";
    CHECK_THAT(why_not_kept((file / "cleave" / "kernels").string()),
               Catch::Contains(file.string() + " is no folder"));
    // Nobody makes anything there.
    CHECK_THAT(why_not_kept("/proc/self/cleave"), Catch::Contains("/proc/self"));
}

TEST_CASE("an entry that others may have written, or that is no regular file, is absent",
          "[codegen]") {
    const test::TemporaryFolder folder;
    const ObjectCache cache(folder.path().string());
    const fs::path entry = cache.path("key"), kept = cache.path("kept");
    cache.store("kept", small_kernel());
    const auto is_found = [&] { return cache.find("key", "k").has_value(); };
    SECTION("writable by others") {
        cache.store("key", small_kernel());
        REQUIRE(is_found());
        REQUIRE(::chmod(entry.c_str(), 0666) == 0);
    }
    SECTION("another user's") {
        cache.store("key", small_kernel());
        if (::geteuid() != 0) CLEAVE_SKIP("only root can give files away");
        REQUIRE(::chown(entry.c_str(), 65534, 65534) == 0);
    }
    SECTION("a link") { fs::create_symlink(kept, entry); }
    SECTION("a folder") { fs::create_directory(entry); }
    SECTION("a FIFO") { REQUIRE(::mkfifo(entry.c_str(), 0600) == 0); }
    SECTION("a device without an end") { fs::create_symlink("/dev/zero", entry); }
    CHECK_FALSE(is_found());
    CHECK(cache.find("kept", "k"));
    // What has its place is none of the cache's: the next kernel takes it.
    cache.store("key", small_kernel());
    CHECK(is_found());
    CHECK(cache.find("kept", "k"));
}

TEST_CASE("a limit that is no file is replaced, and waits for nobody", "[codegen]") {
    const test::TemporaryFolder folder;
    cache_contents(folder.path().string());
    REQUIRE(::mkfifo((folder.path() / "limit").c_str(), 0600) == 0);
    CHECK(limit_cache(1000, folder.path().string()).limit == 1000);
    CHECK(cache_contents(folder.path().string()).limit == 1000);
}

// A copy from nowhere is undefined even of no bytes: the sanitizers see it fail.
TEST_CASE("an entry of an object without bytes is read as it was stored", "[codegen]") {
    const test::TemporaryFolder folder;
    const ObjectCache cache(folder.path().string());
    CompiledKernel kernel = small_kernel();
    kernel.object.clear();
    cache.store("key", kernel);
    const auto found = cache.find("key", "k");
    REQUIRE(found);
    CHECK(found->object.empty());
}

TEST_CASE("what killed processes left in the cache goes after a day", "[codegen]") {
    const test::TemporaryFolder folder;
    const fs::path left = folder.path() / "key.o.0123456789abcdef.tmp";
    const fs::path fresh = folder.path() / "key.o.fedcba9876543210.tmp";
    for (const fs::path& path : {left, fresh}) std::ofstream(path) << "half";
    fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(25));
    ObjectCache(folder.path().string()).store("key", small_kernel());
    CHECK_FALSE(fs::exists(left));
    CHECK(fs::exists(fresh));
}

TEST_CASE("entries over the cache's limit go, those used longest ago first, and use keeps one",
          "[codegen]") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path().string();
    const ObjectCache cache(path);
    const std::vector<std::string> keys{"a", "b", "c", "d"};
    for (const std::string& key : keys) cache.store(key, small_kernel());
    const auto age = [&](const std::string& key, int hours) {
        fs::last_write_time(cache.path(key),
                            fs::file_time_type::clock::now() - std::chrono::hours(hours));
    };
    for (size_t i = 0; i < keys.size(); ++i) age(keys[i], 40 - 10 * static_cast<int>(i));
    REQUIRE(cache.find("a", "k"));  // used now, though it was the oldest
    CacheContents before = cache_contents(path);
    read_names(before);
    REQUIRE(before.entries.size() == 4);
    CHECK(before.limit == kDefaultCacheLimit);
    const std::vector<std::string> in_order{"b", "c", "d", "a"};
    for (size_t i = 0; i < 4; ++i) {
        CHECK(before.entries[i].key == in_order[i]);
        CHECK(before.entries[i].name == "k");
        CHECK(before.entries[i].bytes == static_cast<int64_t>(fs::file_size(cache.path("a"))));
    }
    const int64_t size = before.entries[0].bytes;
    const CacheContents two = limit_cache(2 * size + size / 2, path);
    REQUIRE(two.entries.size() == 2);
    CHECK(two.entries[0].key == "d");
    CHECK(two.entries[1].key == "a");
    CHECK(cache_contents(path).limit == 2 * size + size / 2);

    // Another process's first entry: the limit holds there, too.
    age("d", 5);
    ObjectCache(path).store("e", small_kernel());
    const CacheContents after = cache_contents(path);
    REQUIRE(after.entries.size() == 2);
    CHECK(after.entries[0].key == "a");
    CHECK(after.entries[1].key == "e");

    CHECK(clear_cache(path).entries.empty());
    CHECK(cache_contents(path).entries.empty());
    CHECK_FALSE(cache.find("a", "k"));
    CHECK(cache_contents(path).limit == 2 * size + size / 2);
}

TEST_CASE("a process that compiles much keeps the cache within a sixteenth of its limit",
          "[codegen]") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path().string();
    const ObjectCache cache(path);
    cache.store("first", small_kernel());
    const int64_t size = cache_contents(path).bytes();
    limit_cache(32 * size, path);
    for (int i = 0; i < 100; ++i) {
        cache.store(fmt::format("{:03}", i), small_kernel());
        CHECK(cache_contents(path).bytes() <= 32 * size + 32 * size / 16);
    }
}

TEST_CASE("upkeep of a cache that cannot be used is an error with the reason, and changes nothing",
          "[codegen]") {
    const test::TemporaryFolder folder;
    const fs::path kernels = folder.path() / "kernels";
    const std::string path = kernels.string();
    CHECK(cache_contents(path).entries.empty());  // not there yet
    CHECK_FALSE(fs::exists(kernels));
    ObjectCache(path).store("key", small_kernel());
    fs::permissions(kernels, fs::perms::all);
    for (const auto& upkeep : std::vector<std::function<void()>>{[&] { cache_contents(path); },
                                                                 [&] { clear_cache(path); },
                                                                 [&] { limit_cache(0, path); }})
        CHECK_THROWS_WITH(upkeep(), Catch::Contains("no cache of kernels") &&
                                        Catch::Contains("writable by others"));
    CHECK(fs::exists(kernels / "key.o"));
}

}  // namespace cleave::codegen
