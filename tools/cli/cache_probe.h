// SPDX-License-Identifier: Apache-2.0
// How much of the last-level cache this process has. What is told, a virtual machine above all, is
// the size of the whole, which it shares with others: of 273 MB some 80 to 110 held what was read
// last, and a model that was thought to lie there for a good part came from memory. In: the size
// that is told. Out: the size with which the cost model's law holds (LaunchCosts::resident in
// planner/cost/launch_times.cpp): what is read over and over comes from the cache whole up to that
// size, and from memory whole from twice that size on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/base/cancel.h"

namespace cleave::tools {

// So many bytes read over and over took so long each.
struct RereadTime {
    int64_t bytes = 0;
    double ns_per_byte = 0;
};

// In: `told` bytes, and times by increasing size, the last of memory. Out: at most `told`, and
// `told` where memory is about as fast as the cache, so that nothing can be seen and little depends
// on it.
int64_t cache_share(int64_t told, std::span<const RereadTime> times);

// Reads a buffer of twice `told` bytes with one thread. Not thread-safe.
class CacheProbe {
public:
    using Read = std::function<double(std::span<const uint64_t>)>;  // all words once; ns
    explicit CacheProbe(int64_t told, Read read = {});              // empty: a plain loop
    // A few reads of each size: half a second for 273 MB. Throws Cancelled when `cancel` is set.
    void round(const CancelToken* cancel);
    int64_t share() const;  // by the medians of the rounds, one at least

private:
    int64_t told_;
    Read read_;
    std::vector<std::vector<double>> ns_per_byte_;  // by size, of each read
};

}  // namespace cleave::tools
