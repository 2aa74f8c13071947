// SPDX-License-Identifier: Apache-2.0
// The share of the last-level cache that a process has, from times of reading over and over.
#include <algorithm>
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

TEST_CASE("a probe of this machine finds no more than it is told, and stops when cancelled",
          "[tools]") {
    CacheProbe probe(1 << 20);
    probe.round(nullptr);
    CHECK(probe.share() >= 0);
    CHECK(probe.share() <= 1 << 20);
    CacheProbe(1).round(nullptr);  // a size that no loop has
    CancelToken cancel;
    cancel.cancel();
    CHECK_THROWS_AS(probe.round(&cancel), Cancelled);
}

}  // namespace cleave::test
