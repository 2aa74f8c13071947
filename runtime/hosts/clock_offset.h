// SPDX-License-Identifier: Apache-2.0
// How far another rank's clock is ahead of this one's, by messages there and back (Mills, "Internet
// Time Synchronization: the Network Time Protocol", IEEE Transactions on Communications 1991).
#pragma once

#include <cstdint>
#include <span>

namespace cleave::runtime {

// This clock when a message left and when its answer came, and the other one's between.
struct ClockReading {
    int64_t left_ns = 0, other_ns = 0, came_ns = 0;
};

struct ClockOffset {
    int64_t ahead_ns = 0;
    int64_t error_ns = 0;  // it is off by this at most
};

// By the quickest of `readings`, of which there is one at least: the message took half of the time,
// give or take the other half.
inline ClockOffset clock_offset(std::span<const ClockReading> readings) {
    ClockOffset best;
    for (const ClockReading& r : readings) {
        const int64_t half = (r.came_ns - r.left_ns + 1) / 2;
        if (&r == readings.data() || half < best.error_ns)
            best = {r.other_ns - r.left_ns - half, half};
    }
    return best;
}

}  // namespace cleave::runtime
