// SPDX-License-Identifier: Apache-2.0
// Products on rounded activations (rounded.h) for few tokens: vectors along the depth, weights
// stream through once. Integer codes of 4 or 8 bits meet int8: a step is as many groups as a vector
// has fours of lanes; products are exact in a group, sums of groups are f32, a lane for every
// fourth of a group's products. bf16 meets bf16 where the CPU multiplies them, in pairs, a lane for
// every sixteenth pair.
#pragma once

#include "dots.h"
#include "prelude.h"
#include "quantized.h"

namespace cleave {

// Sums of the products of neighbouring pairs of 16 bits.
using Shorts = __INT16_TYPE__ __attribute__((ext_vector_type(2 * kLanes)));
CLEAVE_INLINE IntN<kLanes> multiply_pairs(Shorts a, Shorts b) {
#if defined(__AVX512BW__)
    return __builtin_ia32_pmaddwd512(a, b);
#elif defined(__AVX2__) && !defined(__AVX512F__)
    return __builtin_ia32_pmaddwd256(a, b);
#else
    const auto low = [](Shorts v) { return __builtin_bit_cast(IntN<kLanes>, v) << 16 >> 16; };
    const auto high = [](Shorts v) { return __builtin_bit_cast(IntN<kLanes>, v) >> 16; };
    return low(a) * low(b) + high(a) * high(b);
#endif
}

// sums + the products of the four bytes of each lane: unsigned ones of w, signed ones of x.
CLEAVE_INLINE IntN<kLanes> dot4(IntN<kLanes> sums, UintN<kLanes> w, UintN<kLanes> x) {
#if defined(__AVX512VNNI__) && defined(__AVX512F__)
    return __builtin_ia32_vpdpbusd512(sums, __builtin_bit_cast(IntN<kLanes>, w),
                                      __builtin_bit_cast(IntN<kLanes>, x));
#elif defined(__AVXVNNI__) && defined(__AVX2__) && !defined(__AVX512F__)
    return __builtin_ia32_vpdpbusd256(sums, __builtin_bit_cast(IntN<kLanes>, w),
                                      __builtin_bit_cast(IntN<kLanes>, x));
#else
    // Bytes 0 and 2, then 1 and 3, each as 16 bits.
    const auto shorts = [](UintN<kLanes> v) { return __builtin_bit_cast(Shorts, v); };
    return sums + multiply_pairs(shorts(w & 0x00ff00ffu), shorts(x) << 8 >> 8) +
           multiply_pairs(shorts((w >> 8) & 0x00ff00ffu), shorts(x) >> 8);
#endif
}

// sums + what a unit of bf16 weights and activations is worth: a pair where the CPU multiplies
// them, the second product first; else an f32 for each.
CLEAVE_INLINE Vec dot_unit(Vec sums, UintN<kLanes> w, UintN<kLanes> x) {
#if defined(__AVX512BF16__)
    using Pairs = __bf16 __attribute__((__vector_size__(4 * kLanes)));
    return __builtin_ia32_dpbf16ps_512(sums, __builtin_bit_cast(Pairs, w),
                                       __builtin_bit_cast(Pairs, x));
#else
    return sums + __builtin_bit_cast(Vec, w) * __builtin_bit_cast(Vec, x);
#endif
}
#if defined(__AVX512BF16__)
inline constexpr i64 kUnitElements = 2;
#else
inline constexpr i64 kUnitElements = 1;
#endif

// ---- A token in steps

inline constexpr i64 kStepGroups = kLanes / 4;
inline constexpr i64 kStepFeatures = kStepGroups * kGroup;

struct Int8Step {
    u32 codes[2][kLanes];  // of each group the first half, then the second
    float scales[kLanes];  // of each group, in its four lanes
    i32 sums[kLanes];      // of each group's codes, in the first of them; else 0
};

// Of K features: groups that do not fill the last step are zero.
template <i64 K>
inline constexpr i64 kInt8Steps = ceil_div(K, kStepFeatures);

struct Int8Tokens {
    static constexpr i64 kAtOnce = 4;
    const Int8Step* data;
    i64 count;
    i64 stride;  // of tokens, in steps
    float step;  // unused: products of integers have their scales
};

// ---- Weights of a step

// Lane l of the result is element l / 4.
template <i64... kI>
CLEAVE_INLINE Vec spread(FloatN<kStepGroups> v, Sequence<i64, kI...>) {
    return __builtin_shufflevector(v, v, (kI / 4)...);
}
// Of pairs of four lanes the first ones, or the second ones.
template <i64 kSecond, i64... kI>
CLEAVE_INLINE UintN<kLanes> halves(UintN<kLanes> a, UintN<kLanes> b, Sequence<i64, kI...>) {
    return __builtin_shufflevector(a, b, (8 * (kI / 4) + 4 * kSecond + kI % 4)...);
}
using LaneNumbers = __make_integer_seq<Sequence, i64, kLanes>;

// Codes of kGroups groups in the order of Int8Step, zero past them.
template <class Q, i64 kGroups>
CLEAVE_INLINE void read_step(const u8* codes, UintN<kLanes> (&w)[2]) {
    w[0] = 0u;
    if constexpr (Q::kGroupBytes == kHalf) {
        __builtin_memcpy(&w[0], codes, kGroups * kHalf);
        w[1] = (w[0] >> 4) & 0x0f0f0f0fu;
        w[0] = w[0] & 0x0f0f0f0fu;
    } else {
        w[1] = 0u;
        __builtin_memcpy(&w, codes, kGroups * kGroup);
        const UintN<kLanes> first = halves<0>(w[0], w[1], LaneNumbers());
        w[1] = halves<1>(w[0], w[1], LaneNumbers());
        w[0] = first;
    }
}

// Scales, or zero points, of kGroups groups from `group` on, each in its four lanes, zero past
// them.
template <bool kZeroPoints, i64 kGroups, class Q>
CLEAVE_INLINE Vec of_groups(QuantizedRows<Q> w, i64 row, i64 group) {
    const auto one = [&](i64 g) __attribute__((always_inline)) {
        const i64 block = min((group + g) * kGroup / Q::kBlockSize, Q::kBlocks - 1);
        if constexpr (kZeroPoints) return w.zero(row, block);
        return w.scale(row, block);
    };
    if constexpr (Q::kBlockSize % kStepFeatures == 0) {
        return one(0);
    } else {
        FloatN<kStepGroups> v = 0.0f;
        if constexpr (!kZeroPoints && Q::kBlockSize == kGroup && kGroups == kStepGroups)
            v = load<kStepGroups>(w.scales + row * Q::kBlocks + group);
        else
#pragma clang loop unroll(full)
            for (i64 g = 0; g < kGroups; ++g) v[g] = one(g);
        return spread(v, LaneNumbers());
    }
}

// ---- The products of codes

// acc += the kGroups groups from `group` on of R rows, `apart` rows from one another, times T
// tokens.
template <i64 kGroups, i64 R, i64 T, class Q>
CLEAVE_INLINE void add_step(QuantizedRows<Q> w, i64 apart, i64 group, const Int8Step* x,
                            i64 x_stride, Vec (&acc)[R][T]) {
    UintN<kLanes> codes[R][2];
    Vec scales[R], zeros[R];
#pragma clang loop unroll(full)
    for (i64 r = 0; r < R; ++r) {
        const i64 row = r * apart;
        read_step<Q, kGroups>(w.codes + row * Q::kRowBytes + group * Q::kGroupBytes, codes[r]);
        scales[r] = of_groups<false, kGroups>(w, row, group);
        if constexpr (!Q::kSameZero) zeros[r] = of_groups<true, kGroups>(w, row, group);
    }
#pragma clang loop unroll(full)
    for (i64 t = 0; t < T; ++t) {
        const Int8Step& token = x[t * x_stride];
        UintN<kLanes> xs[2];
        IntN<kLanes> sums;
        __builtin_memcpy(&xs, token.codes, sizeof(xs));
        __builtin_memcpy(&sums, token.sums, sizeof(sums));
        IntN<kLanes> start = 0;
        if constexpr (Q::kSameZero) start = sums * -static_cast<i32>(Q::zero(nullptr, 0));
#pragma clang loop unroll(full)
        for (i64 r = 0; r < R; ++r) {
            const IntN<kLanes> dots = dot4(dot4(start, codes[r][0], xs[0]), codes[r][1], xs[1]);
            Vec dot = __builtin_convertvector(dots, Vec);
            if constexpr (!Q::kSameZero) dot -= zeros[r] * __builtin_convertvector(sums, Vec);
            acc[r][t] += dot * (scales[r] * load(token.scales));
        }
    }
}

template <i64 K, i64 R, i64 T, class Q>
CLEAVE_INLINE void dot_tile(QuantizedRows<Q> w, const TileRows& rows, const Int8Step* x,
                            i64 x_stride, float, float* c, i64 c_stride) {
    constexpr i64 kGroups = ceil_div(K, kGroup), kWhole = kGroups / kStepGroups;
    const i64 ahead = R * Q::kRowBytes <= kMostTileBytes ? rows.ahead * Q::kRowBytes : kBytesAhead;
    constexpr i64 kStepBytes = kStepGroups * Q::kGroupBytes;
    Vec acc[R][T];
#pragma clang loop unroll(full)
    for (i64 i = 0; i < R * T; ++i) acc[i / T][i % T] = 0.0f;
#pragma clang loop unroll(disable)
    for (i64 s = 0; s < kWhole; ++s) {
#pragma clang loop unroll(full)
        for (i64 r = 0; r < R; ++r)
#pragma clang loop unroll(full)
            for (i64 at = 0; at < kStepBytes; at += 64)
                __builtin_prefetch(
                    w.codes + r * rows.apart * Q::kRowBytes + s * kStepBytes + at + ahead, 0, 2);
        add_step<kStepGroups>(w, rows.apart, s * kStepGroups, x + s, x_stride, acc);
    }
    if constexpr (kGroups % kStepGroups > 0)
        add_step<kGroups % kStepGroups>(w, rows.apart, kWhole * kStepGroups, x + kWhole, x_stride,
                                        acc);
#pragma clang loop unroll(full)
    for (i64 i = 0; i < R * T; ++i)
        c[i % T * c_stride + i / T * rows.apart] = sum(acc[i / T][i % T]);
}

// ---- The products of bf16

struct Bf16Tokens {
    static constexpr i64 kAtOnce = 8;
    const u32* data;  // pairs, the first in the lower half; of an odd depth the last has one
    i64 count;
    i64 stride;  // of tokens, in pairs
    float step;  // unused
};

template <i64 K, i64 R, i64 T>
CLEAVE_INLINE void dot_tile(const bf16* w, const TileRows& rows, const u32* x, i64 x_stride, float,
                            float* c, i64 c_stride) {
    constexpr i64 kStep = 2 * kLanes, kWhole = K / kStep * kStep, kRest = K - kWhole;
    const i64 ahead = R * K * 2 <= kMostTileBytes ? rows.ahead * K : kBytesAhead / 2;
    Vec acc[R][T];
#pragma clang loop unroll(full)
    for (i64 i = 0; i < R * T; ++i) acc[i / T][i % T] = 0.0f;
    const auto step = [&](i64 k, i64 count) __attribute__((always_inline)) {
        UintN<kLanes> ws[R];
#pragma clang loop unroll(full)
        for (i64 r = 0; r < R; ++r) {
            const bf16* from = w + r * rows.apart * K + k;
            __builtin_prefetch(from + ahead, 0, 2);
            ws[r] = 0u;
            __builtin_memcpy(&ws[r], from, count * 2);
        }
#pragma clang loop unroll(full)
        for (i64 t = 0; t < T; ++t) {
            UintN<kLanes> xs = 0u;
            __builtin_memcpy(&xs, x + t * x_stride + k / 2, round_up(count, 2) * 2);
#pragma clang loop unroll(full)
            for (i64 r = 0; r < R; ++r) acc[r][t] = dot_unit(acc[r][t], ws[r], xs);
        }
    };
#pragma clang loop unroll(disable)
    for (i64 k = 0; k < kWhole; k += kStep) step(k, kStep);
    if constexpr (kRest > 0) step(kWhole, kRest);
#pragma clang loop unroll(full)
    for (i64 i = 0; i < R * T; ++i)
        c[i % T * c_stride + i / T * rows.apart] = sum(acc[i / T][i % T]);
}

}  // namespace cleave
