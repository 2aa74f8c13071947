// SPDX-License-Identifier: Apache-2.0
// Quantised weights as importer/weights/quantized_shard.h lays them out, dequantised in registers:
// (code - zero) * scale. A group is 32 elements of a row: two vectors' worth for 16 lanes, its
// first half in the lower halves of 16 bytes (4 bits) or in the first 16 of 32 bytes (8 bits). Rows
// are padded to whole groups; what the padding holds meets only zeros.
#pragma once

#include "prelude.h"

namespace cleave {

// Codes, and zero points: a number for all, integers of the codes' width, or floating.
struct Code4 {
    static constexpr i64 kBits = 4;
};
struct Code8 {
    static constexpr i64 kBits = 8;
};
struct CodeF8 {  // f8e4m3
    static constexpr i64 kBits = 8;
};
struct CodeE2M1 {  // of MXFP4
    static constexpr i64 kBits = 4;
};
struct f8e8m0 {  // scales of MXFP4: 2^(bits - 127), 255 is NaN
    u8 bits;
};
CLEAVE_INLINE float load_one(const f8e8m0* p) {
    const u32 bits = static_cast<u32>(p->bits) << 23;  // 2^-127 is subnormal
    return __builtin_bit_cast(float, p->bits == 0     ? 0x00400000u
                                     : p->bits == 255 ? 0x7fc00000u
                                                      : bits);
}
template <i64 kValue>
struct ConstantZero {};
struct IntegerZero {};
template <class T>
struct FloatZero {};

inline constexpr i64 kGroup = 32;
inline constexpr i64 kHalf = kGroup / 2;
inline constexpr i64 kGroupSteps = kHalf / kLanes;  // vectors in half a group

// K columns in blocks of kBlock (0: one for the row). kDynamic: products are of integers, see
// `Block`.
template <class Code, i64 K, i64 kBlock, class ScaleType, class Zero, bool kDynamicProduct = false>
struct Quantized {
    using Scale = ScaleType;
    static constexpr i64 kColumns = K;
    static constexpr i64 kBlockSize = kBlock > 0 ? kBlock : round_up(K, kGroup);
    static constexpr i64 kBlocks = kBlock > 0 ? ceil_div(K, kBlock) : 1;
    static constexpr i64 kGroupBytes = kGroup * Code::kBits / 8;
    static constexpr i64 kRowBytes = ceil_div(K, kGroup) * kGroupBytes;
    static constexpr bool kDynamic = kDynamicProduct;
    // Each half of a group has one scale.
    static constexpr bool kUniform = kBlockSize % kHalf == 0;
    static_assert(kHalf % kLanes == 0);

    static constexpr i64 zero_row_bytes(IntegerZero) { return ceil_div(kBlocks * Code::kBits, 8); }
    template <class T>
    static constexpr i64 zero_row_bytes(FloatZero<T>) {
        return kBlocks * static_cast<i64>(sizeof(T));
    }
    template <i64 kValue>
    static constexpr i64 zero_row_bytes(ConstantZero<kValue>) {
        return 0;
    }
    static constexpr i64 kZeroRowBytes = zero_row_bytes(Zero());
    static constexpr bool kSameZero = kZeroRowBytes == 0;  // for all elements

    // The zero point of a block; `zeros` are a row's.
    static CLEAVE_INLINE float zero(const u8* zeros, i64 block) {
        return zero(zeros, block, Zero());
    }
    template <i64 kValue>
    static CLEAVE_INLINE float zero(const u8*, i64, ConstantZero<kValue>) {
        return static_cast<float>(kValue);
    }
    static CLEAVE_INLINE float zero(const u8* zeros, i64 block, IntegerZero) {
        if constexpr (Code::kBits == 8) return static_cast<float>(zeros[block]);
        return static_cast<float>((zeros[block / 2] >> (block % 2 * 4)) & 15);
    }
    template <class T>
    static CLEAVE_INLINE float zero(const u8* zeros, i64 block, FloatZero<T>) {
        return load_one(reinterpret_cast<const T*>(zeros) + block);
    }

    // Codes of kLanes elements of a half as numbers; `group` is where the group's codes begin.
    static CLEAVE_INLINE Vec codes(const u8* group, i64 half, i64 step) {
        if constexpr (Code::kBits == 8)
            return number(bytes(group + half * kHalf + step * kLanes), Code());
        IntN<kLanes> v = bytes(group + step * kLanes);
        return number(half ? v >> 4 : v & 15, Code());
    }
    // Code `element` of a group of each lane, whose groups are [kGroupBytes / 4] units of 32 bits.
    static CLEAVE_INLINE Vec code(const UintN<kLanes>* units, i64 element) {
        const i64 byte = Code::kBits == 8 ? element : element % kHalf;
        const i64 shift = byte % 4 * 8 + (Code::kBits == 8 ? 0 : element / kHalf * 4);
        UintN<kLanes> v = units[byte / 4] >> static_cast<u32>(shift);
        v = v & ((1u << Code::kBits) - 1);
        return number(__builtin_bit_cast(IntN<kLanes>, v), Code());
    }
    static CLEAVE_INLINE IntN<kLanes> bytes(const u8* p) {
        BytesN<kLanes> v;
        __builtin_memcpy(&v, p, kLanes);
        return __builtin_convertvector(v, IntN<kLanes>);
    }
    static CLEAVE_INLINE Vec number(IntN<kLanes> v, Code4) {
        return __builtin_convertvector(v, Vec);
    }
    static CLEAVE_INLINE Vec number(IntN<kLanes> v, Code8) {
        return __builtin_convertvector(v, Vec);
    }
    // Exponent and mantissa into f32's places, 126 = 127 - 1 below; the product renormalises 0.5.
    static CLEAVE_INLINE Vec number(IntN<kLanes> v, CodeE2M1) {
        const Vec magnitude = __builtin_bit_cast(Vec, (v & 7) << 22) * 0x1p126f;
        return __builtin_bit_cast(Vec,
                                  __builtin_bit_cast(IntN<kLanes>, magnitude) | ((v & 8) << 28));
    }
    static CLEAVE_INLINE Vec number(IntN<kLanes> v, CodeF8) { return from_f8e4m3<kLanes>(v); }
};

// Rows of a quantised weight, from some row on.
template <class Q>
struct QuantizedRows {
    const u8* codes;
    const typename Q::Scale* scales;
    const u8* zeros;

    CLEAVE_INLINE float scale(i64 row, i64 block) const {
        return load_one(scales + row * Q::kBlocks + block);
    }
    CLEAVE_INLINE float zero(i64 row, i64 block) const {
        return Q::zero(zeros + row * Q::kZeroRowBytes, block);
    }
    // Scales and zero points of a row's blocks [block, block + kCount), in the first lanes.
    template <i64 kCount>
    CLEAVE_INLINE Vec scales_from(i64 row, i64 block) const {
        Vec v = 0.0f;
        if constexpr (kCount == kLanes && !__is_same(typename Q::Scale, f8e8m0)) {
            v = load(scales + row * Q::kBlocks + block);
        } else {
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kCount; ++i) v[i] = scale(row, block + i);
        }
        return v;
    }
    template <i64 kCount>
    CLEAVE_INLINE Vec zeros_from(i64 row, i64 block) const {
        Vec v = 0.0f;
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kCount; ++i) v[i] = zero(row, block + i);
        return v;
    }
    // Two vectors of half a group, from element `at` (a multiple of kGroup) + half * 16 + step *
    // kLanes: their values, or, for a product of integers, the integers.
    CLEAVE_INLINE Vec values(i64 row, i64 at, i64 half, i64 step) const {
        Vec code = Q::codes(codes + row * Q::kRowBytes + at / kGroup * Q::kGroupBytes, half, step);
        i64 first = at + half * kHalf + step * kLanes;
        if constexpr (Q::kUniform) {
            // The padding of the last group has no block of its own.
            i64 block = min(first / Q::kBlockSize, Q::kBlocks - 1);
            Vec difference = code - zero(row, block);
            if constexpr (Q::kDynamic) return difference;
            return difference * scale(row, block);
        } else {
            Vec zeros_of, scales_of;
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kLanes; ++i) {
                i64 block = min((first + i) / Q::kBlockSize, Q::kBlocks - 1);
                zeros_of[i] = zero(row, block);
                scales_of[i] = scale(row, block);
            }
            if constexpr (Q::kDynamic) return code - zeros_of;
            return (code - zeros_of) * scales_of;
        }
    }
};

// ---- Weights of any kind, as rows

template <class T>
inline constexpr bool kIsQuantized = false;
template <class Code, i64 K, i64 kBlock, class Scale, class Zero, bool kDynamic>
inline constexpr bool kIsQuantized<Quantized<Code, K, kBlock, Scale, Zero, kDynamic>> = true;

template <class T>
inline constexpr bool kIsDynamic = false;
template <class Code, i64 K, i64 kBlock, class Scale, class Zero>
inline constexpr bool kIsDynamic<Quantized<Code, K, kBlock, Scale, Zero, true>> = true;

// Of what rows_of gives.
template <class Rows>
inline constexpr bool kIsIntegers = false;
template <class Q>
inline constexpr bool kIsIntegers<QuantizedRows<Q>> = Q::kDynamic;

// The rows of a [kRows, K] weight in its buffer: a pointer for floating ones.
template <i64 kRows, class W>
CLEAVE_INLINE auto rows_of(const W* buffer) {
    if constexpr (kIsQuantized<W>) {
        constexpr i64 kScales = round_up(kRows * W::kRowBytes, 64);
        constexpr i64 kZeros = round_up(
            kScales + kRows * W::kBlocks * static_cast<i64>(sizeof(typename W::Scale)), 64);
        const u8* bytes = reinterpret_cast<const u8*>(buffer);
        return QuantizedRows<W>{bytes, reinterpret_cast<const typename W::Scale*>(bytes + kScales),
                                bytes + kZeros};
    } else {
        return buffer;
    }
}

template <i64 K, class W>
CLEAVE_INLINE const W* skip_rows(const W* w, i64 rows) {
    return w + rows * K;
}
template <i64 K, class Q>
CLEAVE_INLINE QuantizedRows<Q> skip_rows(QuantizedRows<Q> w, i64 rows) {
    return {w.codes + rows * Q::kRowBytes, w.scales + rows * Q::kBlocks,
            w.zeros + rows * Q::kZeroRowBytes};
}

// Elements [k, k + depth) of a row as f32. Quantised: k is a multiple of kGroup, whole groups are
// written.
template <i64 K, class W>
CLEAVE_INLINE void widen(const W* w, i64 row, i64 k, i64 depth, float* to) {
    const W* source = w + row * K + k;
    i64 i = 0;
    for (; i + kLanes <= depth; i += kLanes) store(to + i, load(source + i));
    for (; i < depth; ++i) to[i] = load_one(source + i);
}
template <i64 K, class Q>
CLEAVE_INLINE void widen(QuantizedRows<Q> w, i64 row, i64 k, i64 depth, float* to) {
    for (i64 at = 0; at < depth; at += kGroup)
#pragma clang loop unroll(full)
        for (i64 i = 0; i < 2 * kGroupSteps; ++i) {
            i64 half = i / kGroupSteps, step = i % kGroupSteps;
            store(to + at + half * kHalf + step * kLanes, w.values(row, k + at, half, step));
        }
}

}  // namespace cleave
