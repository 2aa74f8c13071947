// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/mapped_file.h"
#include "runtime/load/read_ahead.h"
#include "tests/support/test.h"

using namespace cleave;
using runtime::ReadAhead;

TEST_CASE(
    "all that is about to be read, and some way behind it, has been asked for, once and in order",
    "[runtime]") {
    std::mt19937 rng(6);
    std::vector<std::byte> file(size_t{300} << 20);
    const std::byte* base = file.data();
    for (int round = 0; round < 20; ++round) {
        std::vector<ReadAhead::Span> spans;
        for (size_t at = 0; at < file.size();) {
            const size_t largest = round % 2 ? size_t{120} << 20 : size_t{3} << 20;
            const size_t size = std::min<size_t>(file.size() - at, rng() % largest);
            spans.push_back(std::span(file).subspan(at, size));
            at += size;
        }
        const size_t end = static_cast<size_t>(spans.back().data() - base) + spans.back().size();
        size_t asked = 0;
        ReadAhead ahead(spans, [&](ReadAhead::Span piece) {
            REQUIRE(piece.data() == base + asked);
            REQUIRE((!piece.empty() && piece.size() <= ReadAhead::kPiece));
            asked += piece.size();
        });
        for (size_t i = 0; i < spans.size(); ++i)
            for (size_t read = 0; read < spans[i].size();) {
                read += std::min<size_t>(spans[i].size() - read, 1 + rng() % (5 << 20));
                ahead.about_to_read(i, read);
                const size_t here = static_cast<size_t>(spans[i].data() - base) + read;
                REQUIRE(asked >= std::min(end, here + ReadAhead::kAhead));
                REQUIRE(asked <= here + ReadAhead::kAhead + ReadAhead::kPiece);
            }
        CHECK(asked == end);
    }
}

TEST_CASE("spans that were passed over are not asked for, and empty ones are none", "[runtime]") {
    std::vector<std::byte> file(size_t{200} << 20);
    const auto part = [&](size_t at, size_t size) {
        return ReadAhead::Span(file).subspan(at << 20, size << 20);
    };
    std::vector<const std::byte*> asked;
    ReadAhead ahead({part(0, 90), part(90, 0), part(90, 80), part(170, 0), part(170, 30)},
                    [&](ReadAhead::Span piece) { asked.push_back(piece.data()); });
    ahead.about_to_read(2, 1);
    REQUIRE(!asked.empty());
    CHECK(asked.front() == part(90, 0).data());
    ahead.about_to_read(3, 0);
    ahead.about_to_read(4, 30 << 20);
    CHECK(asked.back() >= part(170, 0).data());
}

TEST_CASE("bytes of a file that will be needed come into memory without being read", "[runtime]") {
    cleave::test::TemporaryFolder folder;
    const std::string path = (folder.path() / "data").string();
    constexpr size_t kSize = size_t{4} << 20;
    std::ofstream(path, std::ios::binary) << std::string(kSize, 'x');
    const int fd = ::open(path.c_str(), O_RDWR);
    REQUIRE(fd >= 0);
    ::fsync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    const MappedFile map(path);
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const auto resident = [&](size_t at, size_t size) {
        std::vector<unsigned char> pages((size + page - 1) / page);
        ::mincore(const_cast<std::byte*>(map.bytes().data()) + at, size, pages.data());
        return std::count_if(pages.begin(), pages.end(), [](auto p) { return p & 1; });
    };
    const bool dropped = resident(0, kSize) == 0;
    ::close(fd);
    if (!dropped) CLEAVE_SKIP("the file system keeps a file's pages in memory");
    will_need(map.bytes().subspan(page + 100, size_t{2} << 20));
    const auto wanted = static_cast<int64_t>((size_t{2} << 20) / page);
    for (int i = 0; i < 5000 && resident(page, size_t{2} << 20) < wanted; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(resident(page, size_t{2} << 20) == wanted);
}
