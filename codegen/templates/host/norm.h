// SPDX-License-Identifier: Apache-2.0
// RMS normalisation of a row: y = x / sqrt(mean(x^2) + epsilon) * (offset + weight). The mean of
// squares is summed in double, so that long rows lose nothing.
#pragma once

#include "prelude.h"

namespace cleave {

// 1 / sqrt(mean(x^2) + epsilon) of x [n].
template <i64 n>
CLEAVE_INLINE float rms_scale(const float* x, double epsilon) {
    constexpr i64 N = width_for(n) > 1 ? width_for(n) : 2;
    DoubleN<N> low = 0.0, high = 0.0;
    i64 i = 0;
    for (; i + 2 * N <= n; i += 2 * N) {
        DoubleN<N> a = __builtin_convertvector(load<N>(x + i), DoubleN<N>);
        DoubleN<N> b = __builtin_convertvector(load<N>(x + i + N), DoubleN<N>);
        low += a * a;
        high += b * b;
    }
    double total = sum(low + high);
    for (; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return static_cast<float>(1.0 / __builtin_sqrt(total / n + epsilon));
}

// A norm fused in front of a matrix product; NoNorm without one.
struct NoNorm {
    static constexpr bool kPresent = false;
};
template <class W>
struct RmsNorm {
    static constexpr bool kPresent = true;
    const W* weight;  // [n]
    double epsilon;
    float offset;
};

template <i64 n, class W>
CLEAVE_INLINE void rms_norm_row(const float* x, const RmsNorm<W>& norm, float* y) {
    float scale = rms_scale<n>(x, norm.epsilon);
    i64 i = 0;
    for (; i + kLanes <= n; i += kLanes)
        store(y + i, load(x + i) * scale * (load(norm.weight + i) + norm.offset));
    for (; i < n; ++i) y[i] = x[i] * scale * (load_one(norm.weight + i) + norm.offset);
}

}  // namespace cleave
