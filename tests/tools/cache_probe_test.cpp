// SPDX-License-Identifier: Apache-2.0
// The share of the last-level cache that a process has, from times of reading over and over.
#include <algorithm>
#include <span>
#include <vector>

#include "tests/support/test.h"
#include "tools/cli/cache_probe.h"

namespace cleave::test {
namespace {

using namespace tools;

constexpr int64_t kTold = 256 << 20;

// Times as the cost model has them of a cache of which `share` bytes are the process's.
std::vector<RereadTime> times_with(int64_t share, double cache_ns, double memory_ns) {
    std::vector<RereadTime> times;
    for (int64_t bytes = kTold / 16; bytes <= 2 * kTold; bytes += kTold / 16) {
        const double cached = std::clamp(
            static_cast<double>(2 * share - bytes) / static_cast<double>(share), 0.0, 1.0);
        times.push_back({bytes, cached * cache_ns + (1 - cached) * memory_ns});
    }
    return times;
}

}  // namespace

TEST_CASE("the share of a cache is the one by whose law the times came about", "[tools]") {
    for (int64_t share = kTold / 8; share <= kTold; share += kTold / 16) {
        INFO(share);
        CHECK(cache_share(kTold, times_with(share, 0.02, 0.06)) ==
              Approx(static_cast<double>(share)).epsilon(0.05));
        CHECK(cache_share(kTold, times_with(share, 0.033, 0.061)) ==
              Approx(static_cast<double>(share)).epsilon(0.05));
    }
}

TEST_CASE("of a cache that is no faster than memory, or of no times, the size stays as it is told",
          "[tools]") {
    CHECK(cache_share(kTold, times_with(kTold / 4, 0.06, 0.06)) == kTold);
    CHECK(cache_share(kTold, times_with(kTold / 4, 0.055, 0.06)) == kTold);
    CHECK(cache_share(kTold, {}) == kTold);
    // Where even the least that was read came from memory for the most part, little is there.
    const std::vector<RereadTime> shared{{kTold / 8, 0.05}, {kTold / 4, 0.06}, {kTold, 0.061}};
    CHECK(cache_share(kTold, shared) <= kTold / 4);
}

TEST_CASE("a probe reads sizes up to twice what it is told, and finds the share by their times",
          "[tools]") {
    constexpr int64_t kLittle = 1 << 20, kShare = kLittle / 2;
    std::vector<size_t> sizes;
    CacheProbe probe(kLittle, [&](std::span<const uint64_t> words) {
        const double bytes = static_cast<double>(words.size_bytes());
        const double cached = std::clamp((2 * kShare - bytes) / kShare, 0.0, 1.0);
        // The first read of a size finds nothing of it in the cache.
        const bool is_first = sizes.empty() || sizes.back() != words.size_bytes();
        sizes.push_back(words.size_bytes());
        return bytes * (is_first ? 0.06 : 0.06 - 0.03 * cached);
    });
    probe.round(nullptr);
    CHECK(std::ranges::is_sorted(sizes));
    CHECK(sizes.back() == 2 * kLittle);
    CHECK(probe.share() == Approx(static_cast<double>(kShare)).epsilon(0.05));
}

TEST_CASE("a probe of a size that no loop has reads something, and one that is cancelled stops",
          "[tools]") {
    CacheProbe(1).round(nullptr);
    CancelToken cancel;
    int reads = 0;
    CacheProbe probe(1 << 20, [&](std::span<const uint64_t>) {
        if (++reads == 7) cancel.cancel();
        return 1.0;
    });
    CHECK_THROWS_AS(probe.round(&cancel), Cancelled);
    CHECK(reads == 7);
}

}  // namespace cleave::test
