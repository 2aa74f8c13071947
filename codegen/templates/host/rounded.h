// SPDX-License-Identifier: Apache-2.0
// Products on rounded activations: c[t][r] = dot(w[r], round(x[t])), which rounded_product.h makes.
// With weights of bf16 x is rounded to bf16; with integer codes of 4 or 8 bits, to int8 times a
// scale for each group of 32 features, the largest magnitude / 127. Products of integers are exact
// within a group; all other sums are f32, one group or pair after the other, whatever the number of
// tokens and the vectors' width.
// A few tokens meet weights by vectors along the depth (rounded_dots.h; bf16 without a unit for it
// as f32, matmul.h): the same products, other sums; not where those must not depend on the number
// of tokens. For more, rows of weights lie in lanes: a strip of them is transposed into units of 32
// bits (4 codes or 2 bf16), which meet the same units of each token: vpdpbusd and vdpbf16ps, or
// what equals them.
#pragma once

#include "matmul.h"
#include "norm.h"
#include "prelude.h"
#include "quantized.h"
#include "rounded_dots.h"

namespace cleave {

enum class Rounding { kNone, kBf16, kInt8 };

// How a product with W rounds x where the plan's arithmetic is fast.
template <class W>
inline constexpr Rounding kRoundingOf = Rounding::kNone;
template <>
inline constexpr Rounding kRoundingOf<bf16> = Rounding::kBf16;
template <i64 K, i64 kBlock, class Scale, class Zero>
inline constexpr Rounding kRoundingOf<Quantized<Code4, K, kBlock, Scale, Zero, false>> =
    kBlock % kGroup == 0 ? Rounding::kInt8 : Rounding::kNone;
template <i64 K, i64 kBlock, class Scale, class Zero>
inline constexpr Rounding kRoundingOf<Quantized<Code8, K, kBlock, Scale, Zero, false>> =
    kBlock % kGroup == 0 ? Rounding::kInt8 : Rounding::kNone;

// Of weights that share an input: as all of them want it, or not at all.
template <bool kFast, class First, class... Others>
inline constexpr Rounding kSharedRounding =
    kFast && (true && ... && (kRoundingOf<Others> == kRoundingOf<First>)) ? kRoundingOf<First>
                                                                          : Rounding::kNone;

// Row vectors of a strip, and the tokens that meet them at once: sums fill the register file.
inline constexpr i64 kStripVectors = 2;
inline constexpr i64 kStripRows = kStripVectors * kLanes;

// ---- A token's features in units of 32 bits

// int8: codes in the order of the features, then a scale and the sum of the codes for each group.
template <i64 K>
struct Int8Row {
    static constexpr i64 kGroups = ceil_div(K, kGroup);
    static constexpr i64 kScales = kGroups * kGroup, kSums = kScales + 4 * kGroups;
    static constexpr i64 kBytes = kSums + 4 * kGroups;
};

// bf16 in pairs where the CPU multiplies them; else f32 with 16 bits of zeros at the end, and the
// second of a pair comes first, as vdpbf16ps adds them. Rows keep out of each other's cache sets.
template <i64 K>
struct Bf16Row {
    static constexpr i64 kUnits = round_up(K, 2) / kUnitElements;
    static constexpr i64 kBytes = kUnits * 4 + (K >= 512 && kUnitElements == 2 ? 64 : 0);
};

// Up to here vectors along K are faster than strips, whose transposition so few tokens do not earn.
template <Rounding kRounding>
inline constexpr i64 kFewTokens = kRounding == Rounding::kBf16 && kUnitElements == 2 ? 32 : 8;

// Tokens made ready: rows of Int8Row or Bf16Row, and scratch for strips. Without a strip they are
// few: steps of Int8Step, rows of Bf16Row, or, where the CPU does not multiply bf16, the values
// that they are rounded to, f32 [count][K]. For tiles, panels and their scratch (tile_product.h).
template <Rounding kRounding>
struct RoundedBlock {
    const u8* data;
    i64 count;
    u32* strip;
    bool for_tiles = false;
};

// A group whose largest magnitude is below this is zero: its reciprocal would overflow.
inline constexpr float kLeastScaled = 0x1p-100f;

// Features [k, k + 32) of a token as codes. `values` past the row's end are zero. A group with an
// infinity or a NaN has a NaN for a scale: so are all sums over it.
CLEAVE_INLINE void round_group(const float* values, u8* codes, float* scale, i32* sum_of) {
    constexpr i64 kVectors = kGroup / kLanes;
    UintN<kLanes> most = 0u;
#pragma clang loop unroll(full)
    for (i64 i = 0; i < kVectors; ++i) {
        const UintN<kLanes> bits =
            __builtin_bit_cast(UintN<kLanes>, load(values + i * kLanes)) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    const u32 bits = __builtin_reduce_max(most);
    const float largest = __builtin_bit_cast(float, bits);
    const bool finite = bits < 0x7f800000u;
    const bool scaled = finite && largest >= kLeastScaled;
    const float inverse = scaled ? 127.0f / largest : 0.0f;
    IntN<kLanes> total = 0;
#pragma clang loop unroll(full)
    for (i64 i = 0; i < kVectors; ++i) {
        const Vec v = finite ? load(values + i * kLanes) * inverse : Vec(0.0f);
        const IntN<kLanes> code =
            __builtin_convertvector(__builtin_elementwise_roundeven(v), IntN<kLanes>);
        total += code;
        const SignedBytesN<kLanes> bytes = __builtin_convertvector(code, SignedBytesN<kLanes>);
        __builtin_memcpy(codes + i * kLanes, &bytes, kLanes);
    }
    *scale = finite ? scaled ? largest / 127.0f : 0.0f : __builtin_nanf("");
    *sum_of = sum(total);
}

template <i64 K>
CLEAVE_INLINE void round_to_int8(const float* x, u8* row) {
    using Row = Int8Row<K>;
    float* scales = reinterpret_cast<float*>(row + Row::kScales);
    i32* sums = reinterpret_cast<i32*>(row + Row::kSums);
    constexpr i64 kWhole = K / kGroup;
#pragma clang loop unroll(disable)
    for (i64 g = 0; g < kWhole; ++g)
        round_group(x + g * kGroup, row + g * kGroup, scales + g, sums + g);
    if constexpr (K % kGroup > 0) {
        float rest[kGroup] = {};
        __builtin_memcpy(rest, x + kWhole * kGroup, (K % kGroup) * sizeof(float));
        round_group(rest, row + kWhole * kGroup, scales + kWhole, sums + kWhole);
    }
}

// As Int8Step; `x` may be read in any order.
template <i64 K>
CLEAVE_INLINE void round_to_steps(const float* x, Int8Step* steps) {
    constexpr i64 kGroups = ceil_div(K, kGroup);
    if constexpr (kGroups % kStepGroups > 0)
        __builtin_memset(steps + kInt8Steps<K> - 1, 0, sizeof(Int8Step));
#pragma clang loop unroll(disable)
    for (i64 g = 0; g < kGroups; ++g) {
        float group[kGroup] = {};
        u8 codes[kGroup];
        float scale;
        i32 sum_of;
        __builtin_memcpy(group, x + g * kGroup, min(kGroup, K - g * kGroup) * sizeof(float));
        round_group(group, codes, &scale, &sum_of);
        Int8Step& step = steps[g / kStepGroups];
        const i64 lane = g % kStepGroups * 4;
        for (i64 half = 0; half < 2; ++half)
            __builtin_memcpy(step.codes[half] + lane, codes + half * kHalf, kHalf);
        for (i64 i = 0; i < 4; ++i) {
            step.scales[lane + i] = scale;
            step.sums[lane + i] = i == 0 ? sum_of : 0;
        }
    }
}

// x [K] to bf16.
template <i64 K>
CLEAVE_INLINE void round_values(const float* x, bf16* to) {
    constexpr i64 kWhole = K / kLanes * kLanes;
    for (i64 i = 0; i < kWhole; i += kLanes) store(to + i, load(x + i));
    for (i64 i = kWhole; i < K; ++i) store_one(to + i, x[i]);
}
// To the values that they are in f32; `to` may be x.
template <i64 K>
CLEAVE_INLINE void round_values(const float* x, float* to) {
    constexpr i64 kWhole = K / kLanes * kLanes;
    bf16 values[kLanes];
    for (i64 i = 0; i < kWhole; i += kLanes) {
        store(values, load(x + i));
        store(to + i, load(values));
    }
    for (i64 i = kWhole; i < K; ++i) {
        store_one(values, x[i]);
        to[i] = load_one(values);
    }
}

template <i64 K>
CLEAVE_INLINE void round_to_bf16(const float* x, u8* row) {
    if constexpr (kUnitElements == 2) {
        bf16* to = reinterpret_cast<bf16*>(row);
        round_values<K>(x, to);
        if constexpr (K % 2 > 0) to[K] = {};
    } else {
        float* to = reinterpret_cast<float*>(row);
        round_values<K>(x, to);
        if constexpr (K % 2 > 0) to[K] = 0;
        for (i64 i = 0; i < K; i += 2) {
            const float first = to[i];
            to[i] = to[i + 1];
            to[i + 1] = first;
        }
    }
}

template <i64 K, Rounding kRounding>
CLEAVE_INLINE void round_row(const float* x, u8* row) {
    if constexpr (kRounding == Rounding::kInt8)
        round_to_int8<K>(x, row);
    else
        round_to_bf16<K>(x, row);
}

// ---- A strip of weights: [units][kStripRows], lane r is row r's; rows past the last repeat it

CLEAVE_INLINE void transpose_units(UintN<kLanes> (&tile)[kLanes]) {
    transpose_tile(reinterpret_cast<Vec(&)[kLanes]>(tile));
}

// Units [from / 4, ..) of kLanes rows of kRowBytes, transposed; zeros past a row's end.
template <i64 kRowBytes>
CLEAVE_INLINE void read_units(const u8* rows, i64 last, i64 from, UintN<kLanes> (&tile)[kLanes]) {
    constexpr i64 kBytes = kLanes * 4, kRest = kRowBytes % kBytes;
    // The next strip's rows are asked for into the second-level cache; past the end of the weights
    // this asks for nothing that exists, which is harmless.
    constexpr i64 kAhead = kStripRows * kRowBytes <= (512 << 10) ? kStripRows * kRowBytes : 4096;
#pragma clang loop unroll(full)
    for (i64 r = 0; r < kLanes; ++r) {
        const u8* p = rows + min(r, last) * kRowBytes + from;
        __builtin_prefetch(p + kAhead, 0, 2);
        tile[r] = 0u;
        if (kRest == 0 || from + kBytes <= kRowBytes)
            __builtin_memcpy(&tile[r], p, kBytes);
        else
            __builtin_memcpy(&tile[r], p, kRest);
    }
    transpose_units(tile);
}

// Codes of up to kLanes groups, 8 units a group; then scales, and zero points, of the rows, f32
// [groups][kStripRows].
template <i64 K, class Q>
struct CodeStrip {
    static constexpr Rounding kRounding = Rounding::kInt8;
    using Row = Int8Row<K>;
    static constexpr i64 kGroups = kLanes < Row::kGroups ? kLanes : Row::kGroups;
    static constexpr i64 kCodes = 0, kScales = kGroups * 8 * kStripRows;
    static constexpr i64 kZeros = kScales + kGroups * kStripRows;
    static constexpr i64 kWords = kZeros + (Q::kSameZero ? 0 : kGroups * kStripRows);
    static constexpr i64 kSteps = ceil_div(Row::kGroups, kGroups);
    static constexpr i64 kGroupUnits = Q::kGroupBytes / 4;  // of codes as they are stored
    static constexpr i64 kTokens = kLanes == 16 ? 6 : 2;

    // Lanes [lane, lane + kLanes) of the strip from rows of `w`, of which `last` is the last.
    static CLEAVE_INLINE void fill(QuantizedRows<Q> w, i64 last, i64 step, i64 lane, u32* strip) {
        const i64 first = step * kGroups, groups = min(kGroups, Row::kGroups - first);
        for (i64 unit = 0; unit < groups * kGroupUnits; unit += kLanes) {
            UintN<kLanes> tile[kLanes];
            read_units<Q::kRowBytes>(w.codes, last, (first * kGroupUnits + unit) * 4, tile);
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kLanes; ++i) {
                const i64 group = (unit + i) / kGroupUnits, at = (unit + i) % kGroupUnits;
                if (kGroups * kGroupUnits % kLanes != 0 && group >= groups) continue;
                u32* to = strip + (group * 8 + at) * kStripRows + lane;
                if constexpr (kGroupUnits == 8) {
                    put(to, tile[i]);
                } else {
                    put(to, tile[i] & 0x0f0f0f0fu);
                    put(to + 4 * kStripRows, (tile[i] >> 4) & 0x0f0f0f0fu);
                }
            }
        }
        float* floats = reinterpret_cast<float*>(strip);
        each_group<false>(w, first, groups, last, floats + kScales + lane);
        if constexpr (!Q::kSameZero)
            each_group<true>(w, first, groups, last, floats + kZeros + lane);
    }
    static CLEAVE_INLINE void put(u32* to, UintN<kLanes> v) { __builtin_memcpy(to, &v, sizeof(v)); }
    template <bool kZeroPoints>
    static CLEAVE_INLINE float one(QuantizedRows<Q> w, i64 row, i64 block) {
        if constexpr (kZeroPoints) return w.zero(row, block);
        return w.scale(row, block);
    }
    // Scales or zero points of the groups.
    template <bool kZeroPoints>
    static CLEAVE_INLINE void each_group(QuantizedRows<Q> w, i64 first, i64 groups, i64 last,
                                         float* to) {
        if constexpr (Q::kBlockSize == kGroup) {
            if (groups == kLanes)
                groups_of<kZeroPoints, kLanes>(w, first, last, to);
            else if constexpr (Row::kGroups % kLanes > 0)
                groups_of<kZeroPoints, Row::kGroups % kLanes>(w, first, last, to);
        } else {
            Vec lanes = 0.0f;
            i64 now = -1;
#pragma clang loop unroll(disable)
            for (i64 g = 0; g < groups; ++g) {
                const i64 block = min((first + g) * kGroup / Q::kBlockSize, Q::kBlocks - 1);
                if (block != now) {
                    float rows[kLanes];
                    for (i64 r = 0; r < kLanes; ++r)
                        rows[r] = one<kZeroPoints>(w, min(r, last), block);
                    lanes = load(rows);
                    now = block;
                }
                store(to + g * kStripRows, lanes);
            }
        }
    }
    template <bool kZeroPoints, i64 kCount>
    static CLEAVE_INLINE void groups_of(QuantizedRows<Q> w, i64 first, i64 last, float* to) {
        Vec tile[kLanes];
#pragma clang loop unroll(disable)
        for (i64 r = 0; r < kLanes; ++r) {
            const i64 row = min(r, last);
            if constexpr (kZeroPoints) {
                tile[r] = w.template zeros_from<kCount>(row, first);
            } else {
                __builtin_prefetch(w.scales + (row + kStripRows) * Q::kBlocks + first, 0, 2);
                tile[r] = w.template scales_from<kCount>(row, first);
            }
        }
        transpose_tile(tile);
#pragma clang loop unroll(disable)
        for (i64 g = 0; g < kCount; ++g) store(to + g * kStripRows, tile[g]);
    }

    // acc += the strip's rows times T tokens from `x`, over its groups.
    template <i64 V, i64 T>
    static CLEAVE_INLINE void multiply(const u32* strip, i64 step, const u8* x, Vec (&acc)[V][T]) {
        const i64 first = step * kGroups, groups = min(kGroups, Row::kGroups - first);
        const float* scales = reinterpret_cast<const float*>(strip) + kScales;
        const float* zeros = reinterpret_cast<const float*>(strip) + kZeros;
#pragma clang loop unroll(disable)
        for (i64 g = 0; g < groups; ++g) {
            IntN<kLanes> dots[V][T];
#pragma clang loop unroll(full)
            for (i64 t = 0; t < T; ++t) {
                i32 start = 0;
                if constexpr (Q::kSameZero)
                    start = -static_cast<i32>(Q::zero(nullptr, 0)) * sum_of(x, t, first + g);
#pragma clang loop unroll(full)
                for (i64 v = 0; v < V; ++v) dots[v][t] = start;
            }
            const u32* units = strip + g * 8 * kStripRows;
            const u8* codes = x + (first + g) * kGroup;
#pragma clang loop unroll_count(V* T >= 8 ? 2 : 8)
            for (i64 q = 0; q < 8; ++q) {
                UintN<kLanes> w[V];
#pragma clang loop unroll(full)
                for (i64 v = 0; v < V; ++v)
                    __builtin_memcpy(&w[v], units + q * kStripRows + v * kLanes, sizeof(w[v]));
#pragma clang loop unroll(full)
                for (i64 t = 0; t < T; ++t) {
                    u32 unit;
                    __builtin_memcpy(&unit, codes + t * Row::kBytes + q * 4, 4);
#pragma clang loop unroll(full)
                    for (i64 v = 0; v < V; ++v)
                        dots[v][t] = dot4(dots[v][t], w[v], UintN<kLanes>(unit));
                }
            }
#pragma clang loop unroll(full)
            for (i64 t = 0; t < T; ++t) {
                const float scale = scale_of(x, t, first + g);
#pragma clang loop unroll(full)
                for (i64 v = 0; v < V; ++v) {
                    const i64 at = g * kStripRows + v * kLanes;
                    Vec dot = __builtin_convertvector(dots[v][t], Vec);
                    if constexpr (!Q::kSameZero)
                        dot -= load(zeros + at) * static_cast<float>(sum_of(x, t, first + g));
                    acc[v][t] += dot * (load(scales + at) * scale);
                }
            }
        }
    }
    static CLEAVE_INLINE float scale_of(const u8* x, i64 t, i64 g) {
        return reinterpret_cast<const float*>(x + t * Row::kBytes + Row::kScales)[g];
    }
    static CLEAVE_INLINE i32 sum_of(const u8* x, i64 t, i64 g) {
        return reinterpret_cast<const i32*>(x + t * Row::kBytes + Row::kSums)[g];
    }
};

template <i64 K>
struct Bf16Strip {
    static constexpr Rounding kRounding = Rounding::kBf16;
    using Row = Bf16Row<K>;
    static constexpr i64 kUnits = min(Row::kUnits, 64 * kUnitElements);
    static constexpr i64 kWords = round_up(kUnits, kLanes * 2) * kStripRows;
    static constexpr i64 kSteps = ceil_div(Row::kUnits, kUnits);
    static constexpr i64 kTokens = kLanes == 16 ? 12 : 4;

    static CLEAVE_INLINE void fill(const bf16* w, i64 last, i64 step, i64 lane, u32* strip) {
        constexpr i64 kPairs = kUnits * kUnitElements / 2, kAll = round_up(K, 2) / 2;
        const i64 first = step * kPairs, pairs = min(kPairs, kAll - first);
        for (i64 pair = 0; pair < pairs; pair += kLanes) {
            UintN<kLanes> tile[kLanes];
            read_units<K * 2>(reinterpret_cast<const u8*>(w), last, (first + pair) * 4, tile);
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kLanes; ++i) {
                u32* to = strip + (pair + i) * (2 / kUnitElements) * kStripRows + lane;
                if constexpr (kUnitElements == 2) {
                    __builtin_memcpy(to, &tile[i], sizeof(tile[i]));
                } else {
                    const UintN<kLanes> high = tile[i] & 0xffff0000u, low = tile[i] << 16;
                    __builtin_memcpy(to, &high, sizeof(high));
                    __builtin_memcpy(to + kStripRows, &low, sizeof(low));
                }
            }
        }
    }

    template <i64 V, i64 T>
    static CLEAVE_INLINE void multiply(const u32* strip, i64 step, const u8* x, Vec (&acc)[V][T]) {
        const i64 first = step * kUnits, units = min(kUnits, Row::kUnits - first);
        x += first * 4;
#pragma clang loop unroll_count(V* T >= 8 ? 2 : 4)
        for (i64 u = 0; u < units; ++u) {
            UintN<kLanes> w[V];
#pragma clang loop unroll(full)
            for (i64 v = 0; v < V; ++v)
                __builtin_memcpy(&w[v], strip + u * kStripRows + v * kLanes, sizeof(w[v]));
#pragma clang loop unroll(full)
            for (i64 t = 0; t < T; ++t) {
                u32 unit;
                __builtin_memcpy(&unit, x + t * Row::kBytes + u * 4, 4);
#pragma clang loop unroll(full)
                for (i64 v = 0; v < V; ++v)
                    acc[v][t] = dot_unit(acc[v][t], w[v], UintN<kLanes>(unit));
            }
        }
    }
};

template <i64 K, class Q>
CodeStrip<K, Q> strip_of(QuantizedRows<Q>);
template <i64 K>
Bf16Strip<K> strip_of(const bf16*);

}  // namespace cleave
