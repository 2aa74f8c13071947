// SPDX-License-Identifier: Apache-2.0
// Rows of 8-bit elements with a scale: an element is stored * scale. In: a row of floats. Out: its
// elements rounded to nearest even, and the scale max|x| / most, most being 127 of int8 and 448 of
// f8e4m3. A row below 2^-100 counts as 0: scale 0. NaN or an infinity in a row makes its scale NaN,
// and its elements 0. GPUs compute the same bits (gpu/eight_bit.cuh).
#pragma once

#include "prelude.h"

namespace cleave {

template <class T>
inline constexpr bool kIsScaled = false;
template <>
inline constexpr bool kIsScaled<int8> = true;
template <>
inline constexpr bool kIsScaled<f8e4m3> = true;
template <class T>
inline constexpr bool kIsScaled<const T> = kIsScaled<T>;

// The nearest integer of x * 2^24, even at a tie: integers, because compilers fuse a product with
// the sum that would round it.
CLEAVE_INLINE i32 round_fixed(i32 x) { return (x + 0x7fffff + (x >> 24 & 1)) >> 24; }

// x is at most 127 in size, but for its last place.
CLEAVE_INLINE void store_nearest(int8* p, float x) {
    p->value = static_cast<__INT8_TYPE__>(round_fixed(static_cast<i32>(x * 0x1p24f)));
}
// x is at most 448 in size, but for its last place.
CLEAVE_INLINE void store_nearest(f8e4m3* p, float x) {
    const u32 bits = __builtin_bit_cast(u32, x), magnitude = bits & 0x7fffffffu;
    // Below 2^-6, subnormals: multiples of 2^-9.
    const bool is_small = magnitude < 0x3c800000u;
    const float below = __builtin_bit_cast(float, is_small ? magnitude : 0u);
    const u32 small = static_cast<u32>(round_fixed(static_cast<i32>(below * 0x1p33f)));
    const u32 normal = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
    p->bits = static_cast<u8>((is_small ? small : normal) | (bits >> 24 & 0x80u));
}

template <class T>
inline constexpr float kMostStored = 127.0f;
template <>
inline constexpr float kMostStored<f8e4m3> = 448.0f;

// Elements of a cache. Stored f8e4m3 is no NaN, which a sign extension and one exact product read.
template <i64 N = kLanes, class T>
CLEAVE_INLINE FloatN<N> load_stored(const T* p) {
    if constexpr (kIsScaled<T> && kMostStored<T> == 448.0f) {
        SignedBytesN<N> v;
        __builtin_memcpy(&v, p, N);
        const IntN<N> bits =
            __builtin_convertvector(v, IntN<N>) << 20 & static_cast<i32>(0x87f00000);
        return __builtin_bit_cast(FloatN<N>, bits) * 0x1p120f;
    } else {
        return load<N>(p);
    }
}

// Stores row x of kDim elements at to[i * kStride], and returns its scale.
template <i64 kDim, i64 kStride, class T>
CLEAVE_INLINE float store_scaled(T* to, const float* x) {
    u32 top = 0;
    for (i64 i = 0; i < kDim; ++i) {
        const u32 magnitude = __builtin_bit_cast(u32, x[i]) & 0x7fffffffu;
        top = magnitude > top ? magnitude : top;
    }
    const float most = __builtin_bit_cast(float, top);
    const bool finite = top < 0x7f800000u;
    if (!finite || most < 0x1p-100f) {
        for (i64 i = 0; i < kDim; ++i) to[i * kStride] = T{};
        return finite ? 0.0f : __builtin_nanf("");
    }
    const float factor = kMostStored<T> / most;
    for (i64 i = 0; i < kDim; ++i) store_nearest(to + i * kStride, x[i] * factor);
    return most / kMostStored<T>;
}

}  // namespace cleave
