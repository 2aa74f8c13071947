// SPDX-License-Identifier: Apache-2.0
// Weights that --keep-packed keeps in the cache.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/test.h"

namespace cleave::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

// Commands with a cache of their own, and a copy of the bundled model that may change.
class PackedCopies {
public:
    PackedCopies() { fs::copy(bundled_model().parent_path(), model_, fs::copy_options::recursive); }

    CommandResult run(const Words& more, bool keep = true) const {
        Words words{"run", file().string(), "--prompt", "Once upon a time", "--max-new-tokens",
                    "12",  "--dtype",       "int4"};
        words = joined(words, more);
        if (keep) words.push_back("--keep-packed");
        return cleave(words);
    }
    CommandResult cleave(const Words& words) const {
        return run_program(
            joined({"env", "XDG_CACHE_HOME=" + cache_.string(), CLEAVE_BINARY}, words));
    }

    fs::path file() const { return model_ / bundled_model().filename(); }
    fs::path packed() const { return cache_ / "cleave" / "packed"; }
    std::vector<fs::path> copies() const {
        std::vector<fs::path> found;
        if (fs::exists(packed()))
            for (const auto& entry : fs::directory_iterator(packed())) found.push_back(entry);
        std::sort(found.begin(), found.end());
        return found;
    }

private:
    TemporaryFolder folder_;
    fs::path model_ = folder_.path() / "model", cache_ = folder_.path() / "cache";
};

}  // namespace

TEST_CASE("a start from packed weights writes the tokens of one that packs them", "[tools]") {
    for (const Words& devices :
         {Words{"--devices", "host"}, Words{"--devices", "host[0-1]", "--tp", "2"},
          Words{"--devices", "host[0-1]", "--pp", "2", "--tp", "1"},
          Words{"--devices", "simt:sm_80[0]"}}) {
        INFO(devices[1]);
        const PackedCopies copies;
        const CommandResult plain = copies.run(devices, false);
        REQUIRE(plain.exit_code == 0);
        CHECK(copies.copies().empty());
        const CommandResult first = copies.run(devices);
        CHECK(first.output == plain.output);
        CHECK_THAT(first.error, Contains("packed weights") && Contains("are kept in"));
        REQUIRE(copies.copies().size() == 1);
        struct stat status{};
        REQUIRE(::stat(copies.copies()[0].c_str(), &status) == 0);
        CHECK((status.st_mode & 0777) == 0600);
        // It is used: it has other bytes now, which give other tokens.
        const CommandResult second = copies.run(devices);
        CHECK(second.exit_code == 0);
        CHECK(second.output == plain.output);
        CHECK_THAT(second.error, !Contains("packed weights"));
        std::string bytes = read_file(copies.copies()[0]);
        for (size_t i = 8192; i < bytes.size(); i += 2) bytes[i] = static_cast<char>(i * 37);
        std::ofstream(copies.copies()[0], std::ios::binary | std::ios::in) << bytes;
        CHECK(copies.run(devices).output != plain.output);
        CHECK(copies.run(devices, false).output == plain.output);
    }
}

TEST_CASE("packed weights of a model that has changed, or that are not whole, are packed again",
          "[tools]") {
    const PackedCopies copies;
    const Words host{"--devices", "host"};
    const CommandResult first = copies.run(host);
    REQUIRE(first.exit_code == 0);
    REQUIRE(copies.copies().size() == 1);
    const fs::path kept = copies.copies()[0];
    const std::string whole = read_file(kept);
    const auto packs_again = [&] {
        const CommandResult again = copies.run(host);
        CHECK(again.output == first.output);
        CHECK_THAT(again.error, Contains("are kept in"));
        REQUIRE(copies.copies() == std::vector<fs::path>{kept});
        CHECK(read_file(kept).size() == whole.size());
    };
    fs::resize_file(kept, whole.size() - 1);
    packs_again();
    std::ofstream(kept, std::ios::binary | std::ios::in) << "another ";
    packs_again();
    fs::remove(kept);
    fs::create_directory(kept);
    packs_again();
    fs::permissions(kept, fs::perms::others_write, fs::perm_options::add);
    packs_again();
    // The same bytes, but nobody knows without reading them.
    for (const auto& entry : fs::directory_iterator(copies.file().parent_path()))
        if (entry.is_regular_file())
            fs::last_write_time(entry, fs::last_write_time(entry) + std::chrono::seconds(5));
    packs_again();
    CHECK_THAT(copies.run(host).error, !Contains("packed weights"));
}

TEST_CASE("where packed weights cannot be kept, one line says why, and the run goes on",
          "[tools]") {
    const PackedCopies copies;
    const Words host{"--devices", "host"};
    const CommandResult plain = copies.run(host, false);
    fs::create_directories(copies.packed());
    fs::permissions(copies.packed(), fs::perms::others_write, fs::perm_options::add);
    const CommandResult loose = copies.run(host);
    CHECK(loose.exit_code == 0);
    CHECK(loose.output == plain.output);
    CHECK_THAT(loose.error,
               Contains("packed weights are not kept: ") && Contains("writable by others"));
    fs::remove(copies.packed());
    std::ofstream(copies.packed()) << "a file";
    const CommandResult closed = copies.run(host);
    CHECK(closed.output == plain.output);
    CHECK_THAT(closed.error,
               Contains("packed weights are not kept: ") && Contains("Not a directory"));
}

TEST_CASE("cleave cache lists and clears packed weights", "[tools]") {
    const PackedCopies copies;
    REQUIRE(copies.run({"--devices", "host"}).exit_code == 0);
    REQUIRE(copies.copies().size() == 1);
    const std::string name = copies.copies()[0].filename();
    CHECK_THAT(copies.cleave({"cache", "--list"}).output, Contains(name));
    const auto json = nlohmann::json::parse(copies.cleave({"cache", "--json"}).output);
    CHECK(json["packed"]["entries"][0]["file"] == name);
    CHECK(json["packed"]["bytes"] == fs::file_size(copies.copies()[0]));
    const CommandResult cleared = copies.cleave({"cache", "--clear"});
    CHECK(cleared.exit_code == 0);
    CHECK_THAT(cleared.output, Contains(" and 1 copy of weights removed"));
    CHECK(copies.copies().empty());
}

}  // namespace cleave::test
