// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3" (SC 2011): a draw depends on key and counter only, so results do not depend on batching
// or device count.
#pragma once

#include <array>
#include <cstdint>

namespace cleave::runtime {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        uint64_t a = uint64_t{0xD2511F53u} * counter[0];
        uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

// Uniform in [0, 1) with 53 bits, from a counter on (seed, sequence, position).
inline double uniform_draw(uint64_t seed, uint64_t sequence, uint64_t position) {
    auto r = philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                         static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32)},
                        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    return static_cast<double>((uint64_t{r[1]} << 32 | r[0]) >> 11) * 0x1.0p-53;
}

}  // namespace cleave::runtime
