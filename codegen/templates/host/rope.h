// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding of one head, in place: the first kRotary of its features turn, in pairs
// (2i, 2i + 1) when interleaved, else (i, i + kRotary / 2). Su et al., "RoFormer", arXiv
// 2104.09864.
#pragma once

#include "prelude.h"

namespace cleave {

// cos, sin [kRotary / 2]: the table's rows of this position.
template <i64 kRotary, bool kInterleaved>
CLEAVE_INLINE void rope_head(float* x, const float* cos, const float* sin) {
    constexpr i64 kHalf = kRotary / 2;
    for (i64 i = 0; i < kHalf; ++i) {
        i64 first = kInterleaved ? 2 * i : i;
        i64 second = kInterleaved ? 2 * i + 1 : i + kHalf;
        float a = x[first], b = x[second];
        x[first] = a * cos[i] - b * sin[i];
        x[second] = b * cos[i] + a * sin[i];
    }
}

// The cosines of a position; the sines are `context` rows further on.
template <i64 kRotary>
CLEAVE_INLINE const float* rope_row(const float* table, i64 position) {
    return table + position * (kRotary / 2);
}

}  // namespace cleave
