// SPDX-License-Identifier: Apache-2.0
// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA
// 2014): small, and a seed means the same numbers on every machine, which the standard library's
// distributions do not promise.
#pragma once

#include <cstdint>

namespace cleave {

class SplitMix64 {
public:
    explicit SplitMix64(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    // In [0, n), n > 0, and in [0, 1).
    int below(int n) { return static_cast<int>((next() >> 33) % static_cast<uint64_t>(n)); }
    double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

private:
    uint64_t state_;
};

}  // namespace cleave
