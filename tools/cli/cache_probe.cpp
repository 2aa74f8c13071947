// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/cache_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include <sys/mman.h>

#include "tools/cli/host_bench.h"

namespace cleave::tools {
namespace {

constexpr int kReads = 4;               // of a size in a round, after one that warms the cache
constexpr double kLeastContrast = 1.2;  // of a byte's time from memory and from the cache

// Sixteenths of the size that is told. The law ends at twice the share.
constexpr std::array<int64_t, 10> kSixteenths{2, 4, 6, 8, 10, 12, 16, 20, 24, 32};

int64_t words_of(int64_t told, int64_t sixteenths) {
    constexpr int64_t kStep = 8;  // words of a turn of the loop
    return std::max(kStep, told / 16 * sixteenths / 8 / kStep * kStep);
}

// Of words that nothing else writes.
uint64_t sum_of(std::span<const uint64_t> words) {
    std::array<uint64_t, 8> sums{};
    for (size_t i = 0; i + sums.size() <= words.size(); i += sums.size())
        for (size_t k = 0; k < sums.size(); ++k) sums[k] += words[i + k];
    uint64_t sum = 0;
    for (const uint64_t part : sums) sum += part;
    return sum;
}

double ns_of_read(std::span<const uint64_t> words) {
    const auto begin = std::chrono::steady_clock::now();
    volatile uint64_t used = sum_of(words);  // else the loop is left out
    (void)used;
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin)
        .count();
}

}  // namespace

int64_t cache_share(int64_t told, std::span<const RereadTime> times) {
    if (times.size() < 2) return told;
    const double memory = times.back().ns_per_byte;
    double cache = memory;
    for (const RereadTime& t : times) cache = std::min(cache, t.ns_per_byte);
    if (memory < kLeastContrast * cache) return told;
    // Half of what is read comes from the cache at one and a half times the share.
    const double middle = (cache + memory) / 2;
    for (size_t i = 1; i < times.size(); ++i) {
        const RereadTime &a = times[i - 1], &b = times[i];
        if (b.ns_per_byte < middle) continue;
        const double part = a.ns_per_byte >= middle
                                ? 0
                                : (middle - a.ns_per_byte) / (b.ns_per_byte - a.ns_per_byte);
        const double half =
            static_cast<double>(a.bytes) + part * static_cast<double>(b.bytes - a.bytes);
        return std::clamp<int64_t>(static_cast<int64_t>(half / 1.5), 0, told);
    }
    return told;
}

CacheProbe::CacheProbe(int64_t told, Read read)
    : told_(told), read_(read ? std::move(read) : ns_of_read), ns_per_byte_(kSixteenths.size()) {}

void CacheProbe::round(const CancelToken* cancel) {
    const auto most = static_cast<size_t>(words_of(told_, kSixteenths.back()));
    const auto buffer = std::make_unique_for_overwrite<uint64_t[]>(most);
    // As weights are: huge pages save the page walks. Without them the buffer serves as well.
    constexpr uintptr_t kPage = 4096;
    const auto begin = (reinterpret_cast<uintptr_t>(buffer.get()) + kPage - 1) / kPage * kPage;
    const auto end = reinterpret_cast<uintptr_t>(buffer.get() + most) / kPage * kPage;
    if (end > begin) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
    std::fill_n(buffer.get(), most, 1);
    for (size_t s = 0; s < kSixteenths.size(); ++s) {
        const auto words = static_cast<size_t>(words_of(told_, kSixteenths[s]));
        for (int read = 0; read <= kReads; ++read) {
            if (cancel) cancel->throw_if_cancelled();
            const double ns = read_({buffer.get(), words});
            if (read > 0) ns_per_byte_[s].push_back(ns / (8 * static_cast<double>(words)));
        }
    }
}

int64_t CacheProbe::share() const {
    std::vector<RereadTime> times;
    for (size_t s = 0; s < kSixteenths.size(); ++s)
        times.push_back({8 * words_of(told_, kSixteenths[s]), median(ns_per_byte_[s])});
    return cache_share(told_, times);
}

}  // namespace cleave::tools
