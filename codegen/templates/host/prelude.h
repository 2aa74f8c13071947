// SPDX-License-Identifier: Apache-2.0
// Vocabulary of the host kernels: integer names, vectors of the target's width, loads of f32, f16,
// bf16, f8e4m3 and int8 as f32, and the mathematics that a freestanding kernel must bring itself.
// One source serves every CPU: the width follows the target's features. Needs Clang
// (ext_vector_type,
// __builtin_elementwise_*).
#pragma once

namespace cleave {

using i32 = __INT32_TYPE__;
using i64 = __INT64_TYPE__;
using u8 = __UINT8_TYPE__;
using u16 = __UINT16_TYPE__;
using u32 = __UINT32_TYPE__;
using u64 = __UINT64_TYPE__;

// Lanes of a vector, and how many rows x vectors of accumulators the register file holds beside
// operands.
#if defined(__AVX512F__)
inline constexpr i64 kLanes = 16;
inline constexpr i64 kTileRows = 12;
#elif defined(__AVX__)
inline constexpr i64 kLanes = 8;
inline constexpr i64 kTileRows = 6;
#else
inline constexpr i64 kLanes = 4;
inline constexpr i64 kTileRows = 6;
#endif

template <i64 N>
using FloatN = float __attribute__((ext_vector_type(N)));
template <i64 N>
using IntN = i32 __attribute__((ext_vector_type(N)));
template <i64 N>
using UintN = u32 __attribute__((ext_vector_type(N)));
template <i64 N>
using BytesN = u8 __attribute__((ext_vector_type(N)));
template <i64 N>
using SignedBytesN = __INT8_TYPE__ __attribute__((ext_vector_type(N)));
template <i64 N>
using HalfBitsN = u16 __attribute__((ext_vector_type(N)));
template <i64 N>
using HalfN = _Float16 __attribute__((ext_vector_type(N)));
template <i64 N>
using DoubleN = double __attribute__((ext_vector_type(N)));

using Vec = FloatN<kLanes>;

struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};
struct f8e4m3 {  // OCP e4m3fn: no infinities
    u8 bits;
};
struct int8 {
    __INT8_TYPE__ value;
};

#define CLEAVE_INLINE inline __attribute__((always_inline))

constexpr i64 min(i64 a, i64 b) { return a < b ? a : b; }
constexpr i64 max(i64 a, i64 b) { return a > b ? a : b; }
constexpr i64 ceil_div(i64 a, i64 b) { return (a + b - 1) / b; }
constexpr i64 round_up(i64 a, i64 b) { return ceil_div(a, b) * b; }

// The largest power of two up to `limit` that divides n.
constexpr i64 width_for(i64 n, i64 limit = kLanes) {
    i64 width = limit;
    while (n % width != 0) width /= 2;
    return width;
}

// ---- Loads and stores, at any address

template <i64 N = kLanes>
CLEAVE_INLINE FloatN<N> load(const float* p) {
    FloatN<N> v;
    __builtin_memcpy(&v, p, sizeof(float) * N);
    return v;
}
template <i64 N = kLanes>
CLEAVE_INLINE FloatN<N> load(const f16* p) {
#if defined(__F16C__)
    HalfN<N> v;
    __builtin_memcpy(&v, p, sizeof(u16) * N);
    return __builtin_convertvector(v, FloatN<N>);
#else
    // Exponents are rebased by an exact product, which also makes subnormals normal.
    HalfBitsN<N> v;
    __builtin_memcpy(&v, p, sizeof(u16) * N);
    UintN<N> bits = __builtin_convertvector(v, UintN<N>);
    UintN<N> magnitude = (bits & 0x7fffu) << 13;
    UintN<N> value =
        __builtin_bit_cast(UintN<N>, __builtin_bit_cast(FloatN<N>, magnitude) * 0x1p112f);
    value = magnitude >= UintN<N>(0x0f800000u) ? (value | 0x7f800000u) : value;  // infinity, NaN
    return __builtin_bit_cast(FloatN<N>, value | ((bits & 0x8000u) << 16));
#endif
}
template <i64 N = kLanes>
CLEAVE_INLINE FloatN<N> load(const bf16* p) {
    HalfBitsN<N> v;
    __builtin_memcpy(&v, p, sizeof(u16) * N);
    return __builtin_bit_cast(FloatN<N>, __builtin_convertvector(v, UintN<N>) << 16);
}

// The exponent is rebased by an exact product, which also makes subnormals normal.
template <i64 N>
CLEAVE_INLINE FloatN<N> from_f8e4m3(IntN<N> code) {
    IntN<N> magnitude = code & 0x7f;
    FloatN<N> value = __builtin_bit_cast(FloatN<N>, magnitude << 20) * 0x1p120f;
    value = magnitude == IntN<N>(0x7f) ? FloatN<N>(__builtin_nanf("")) : value;
    return __builtin_bit_cast(FloatN<N>,
                              __builtin_bit_cast(IntN<N>, value) | ((code & 0x80) << 24));
}
template <i64 N = kLanes>
CLEAVE_INLINE FloatN<N> load(const f8e4m3* p) {
    BytesN<N> v;
    __builtin_memcpy(&v, p, N);
    return from_f8e4m3<N>(__builtin_convertvector(v, IntN<N>));
}

template <i64 N = kLanes>
CLEAVE_INLINE FloatN<N> load(const int8* p) {
    SignedBytesN<N> v;
    __builtin_memcpy(&v, p, N);
    return __builtin_convertvector(__builtin_convertvector(v, IntN<N>), FloatN<N>);
}

CLEAVE_INLINE float load_one(const float* p) { return *p; }
CLEAVE_INLINE float load_one(const f16* p) {
#if defined(__F16C__)
    return static_cast<float>(__builtin_bit_cast(_Float16, p->bits));
#else
    f16 pair[2] = {*p, *p};
    return load<2>(pair)[0];
#endif
}
CLEAVE_INLINE float load_one(const bf16* p) {
    return __builtin_bit_cast(float, static_cast<u32>(p->bits) << 16);
}

CLEAVE_INLINE float load_one(const f8e4m3* p) {
    f8e4m3 pair[2] = {*p, *p};
    return load<2>(pair)[0];
}

template <i64 N = kLanes>
CLEAVE_INLINE void store(float* p, FloatN<N> v) {
    __builtin_memcpy(p, &v, sizeof(float) * N);
}

// Round to nearest even; a NaN stays a NaN.
CLEAVE_INLINE void store_one(float* p, float x) { *p = x; }
CLEAVE_INLINE void store_one(f16* p, float x) {
#if defined(__F16C__)
    p->bits = __builtin_bit_cast(u16, static_cast<_Float16>(x));
#else
    u32 bits = __builtin_bit_cast(u32, x);
    u32 sign = bits & 0x80000000u, half;
    bits ^= sign;
    if (bits >= 0x47800000u) {  // 2^16 and more, infinity, NaN
        half = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (bits < 0x38800000u) {  // subnormal: the sum rounds at the last place of f16
        half = __builtin_bit_cast(u32, __builtin_bit_cast(float, bits) + 0.5f) - 0x3f000000u;
    } else {
        half = (bits + 0xc8000fffu + ((bits >> 13) & 1u)) >> 13;
    }
    p->bits = static_cast<u16>(half | (sign >> 16));
#endif
}
CLEAVE_INLINE void store_one(bf16* p, float x) {
    u32 bits = __builtin_bit_cast(u32, x);
    u32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    p->bits = static_cast<u16>((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}
// As store_one, of a vector.
template <i64 N = kLanes>
CLEAVE_INLINE void store(bf16* p, FloatN<N> v) {
    const UintN<N> bits = __builtin_bit_cast(UintN<N>, v);
    const UintN<N> rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const UintN<N> kept =
        (bits & 0x7fffffffu) > UintN<N>(0x7f800000u) ? (bits >> 16) | 0x40u : rounded;
    const HalfBitsN<N> half = __builtin_convertvector(kept, HalfBitsN<N>);
    __builtin_memcpy(p, &half, sizeof(u16) * N);
}

// ---- Lanes

template <class V>
CLEAVE_INLINE auto sum(V v) {
    if constexpr (sizeof(v) == 2 * sizeof(v[0]))
        return v[0] + v[1];
    else
        return sum(v.lo + v.hi);
}

template <class V>
CLEAVE_INLINE float maximum(V v) {
    if constexpr (sizeof(v) == 2 * sizeof(v[0]))
        return v[0] > v[1] ? v[0] : v[1];
    else
        return maximum(v.lo > v.hi ? v.lo : v.hi);
}

template <class T, T... kI>
struct Sequence {};

template <class V, i64... kI>
CLEAVE_INLINE V interleave_low(V a, V b, Sequence<i64, kI...>) {
    return __builtin_shufflevector(a, b,
                                   (kI % 2 ? static_cast<i64>(sizeof...(kI)) : 0) + kI / 2 ...);
}
template <class V, i64... kI>
CLEAVE_INLINE V interleave_high(V a, V b, Sequence<i64, kI...>) {
    constexpr i64 n = sizeof...(kI);
    return __builtin_shufflevector(a, b, (kI % 2 ? n : 0) + n / 2 + kI / 2 ...);
}

// rows[i][j] <-> rows[j][i], by log2(N) perfect shuffles.
template <i64 N>
CLEAVE_INLINE void transpose(FloatN<N> (&rows)[N]) {
    using Lanes = __make_integer_seq<Sequence, i64, N>;
#pragma clang loop unroll(full)
    for (i64 step = 1; step < N; step *= 2) {
        FloatN<N> next[N];
#pragma clang loop unroll(full)
        for (i64 i = 0; i < N / 2; ++i) {
            next[2 * i] = interleave_low(rows[i], rows[i + N / 2], Lanes());
            next[2 * i + 1] = interleave_high(rows[i], rows[i + N / 2], Lanes());
        }
#pragma clang loop unroll(full)
        for (i64 i = 0; i < N; ++i) rows[i] = next[i];
    }
}

// Lane i of the result is the sum of rows[i].
template <i64 N>
CLEAVE_INLINE FloatN<N> sum_each(FloatN<N> (&rows)[N]) {
    using Lanes = __make_integer_seq<Sequence, i64, N>;
#pragma clang loop unroll(full)
    for (i64 half = N / 2; half > 0; half /= 2) {
#pragma clang loop unroll(full)
        for (i64 i = 0; i < half; ++i)
            rows[i] = interleave_low(rows[i], rows[i + half], Lanes()) +
                      interleave_high(rows[i], rows[i + half], Lanes());
    }
    return rows[0];
}

}  // namespace cleave
