// SPDX-License-Identifier: Apache-2.0
// Rows of memory of any type as runs of floats: widths that divide what is loaded, loads
// of at most 16 bytes, conversions in registers. A kernel takes the widest load that its row
// lengths and offsets allow.
#pragma once

#include "prelude.cuh"

namespace cleave {

template <class T, class U>
struct Same {
    static constexpr bool value = false;
};
template <class T>
struct Same<T, T> {
    static constexpr bool value = true;
};

// A value, where ?: would choose between places and keep both in memory.
template <class T>
DEVICE T choose(bool first, T a, T b) {
    return first ? a : b;
}

// Turns of a loop that go side by side so that their loads overlap. The CPU gains nothing from them
// but code to compile.
#if defined(CLEAVE_SIMT)
DEVICE constexpr int turns(int) { return 1; }
#else
DEVICE constexpr int turns(int n) { return n; }
#endif

DEVICE constexpr i64 gcd(i64 a, i64 b) {
    while (b != 0) {
        i64 r = a % b;
        a = b;
        b = r;
    }
    return a;
}
// Elements of T that one load may take: the largest power of two that divides `n`, 16 bytes at
// most.
template <class T>
DEVICE constexpr int load_width(i64 n) {
    int w = 16 / int(sizeof(T));
    while (w > 1 && n % w != 0) w /= 2;
    return w;
}
DEVICE constexpr int power_of_two_from(i64 n) {
    int p = 1;
    while (p < n) p *= 2;
    return p;
}

template <int N>
struct Floats {
    float v[N];
    DEVICE float& operator[](int i) { return v[i]; }
    DEVICE const float& operator[](int i) const { return v[i]; }
};

// N elements at p; every aligned run of W may be loaded at once.
template <int N, int W = N, class T>
DEVICE Floats<N> load_floats(const T* p) {
    constexpr int kStep = min(min(N, W), 16 / int(sizeof(T)));
    Floats<N> out;
#pragma unroll
    for (int i = 0; i < N; i += kStep) {
        Vector<T, kStep> part = load_vector<kStep>(p + i);
#pragma unroll
        for (int j = 0; j < kStep; ++j) out.v[i + j] = to_float(part.v[j]);
    }
    return out;
}

template <int N, int W = N, class T>
DEVICE void store_floats(T* p, const Floats<N>& in) {
    constexpr int kStep = min(min(N, W), 16 / int(sizeof(T)));
#pragma unroll
    for (int i = 0; i < N; i += kStep) {
        Vector<T, kStep> part;
#pragma unroll
        for (int j = 0; j < kStep; ++j) part.v[j] = from_float<T>(in.v[i + j]);
        store_vector(p + i, part);
    }
}

// As store_floats, of global memory alone.
template <int N, int W = N, class T>
DEVICE void write_run(T* p, const Floats<N>& in) {
    constexpr int kStep = min(min(N, W), 16 / int(sizeof(T)));
#pragma unroll
    for (int i = 0; i < N; i += kStep) {
        Vector<T, kStep> part;
#pragma unroll
        for (int j = 0; j < kStep; ++j) part.v[j] = from_float<T>(in.v[i + j]);
        write_vector(p + i, part);
    }
}

// Elements [from, from + N) of a longer run.
template <int N, int M>
DEVICE Floats<N> slice_of(const Floats<M>& in, int from) {
    Floats<N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.v[i] = in.v[from + i];
    return out;
}

// Rows of activations: token t at base + row(t) * stride, `select` naming the rows where not all
// are wanted. `count` rows of prepared ones may have their factors (f16_factor) behind them.
template <class T>
struct Rows {
    const T* base;
    i64 stride;
    const i32* select;
    i64 count = 0;
    DEVICE const T* row(i64 t) const { return base + (select ? i64(select[t]) : t) * stride; }
    DEVICE const float* factors() const {
        return reinterpret_cast<const float*>(base + count * stride);
    }
};

// f16 takes what is larger for infinite.
constexpr float kLargestF16 = 65504.0f;
// Rows of activations that become f16 are divided by this power of two, and what they make is
// multiplied by it: 1 unless `largest`, of the row's magnitudes, is beyond f16, so that rows within
// keep their bits; else what leaves it in [2^14, 2^15). Rows are not scaled up. f16 takes what is
// below 2^-25 for zero, which counts only in a row of nothing larger: a norm's have a mean square
// of 1, and others would have to be smaller than any model's.
DEVICE float f16_factor(float largest) {
    return largest > kLargestF16 ? as_float(((as_u32(largest) >> 23) - 14u) << 23) : 1.0f;
}
// 1 / f16_factor: of powers of two, exactly.
DEVICE float inverse_factor(float factor) { return as_float((254u << 23) - as_u32(factor)); }

}  // namespace cleave
