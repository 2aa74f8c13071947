// SPDX-License-Identifier: Apache-2.0
// Rows of quantised matrices. Their layout is that of importer/weights/quantized_shard.h; they are
// widened in registers: (code - zero point) * scale. A group is 32 elements of a row, 16 bytes of
// 4-bit codes (element j in the lower half of byte j, element 16 + j in the upper) or 32 bytes;
// rows are padded to whole groups, and what the padding holds meets only zeros.
#pragma once

#include "eight_bit.cuh"

namespace cleave {

// Codes, and zero points: one number for all, integers as wide as the codes, or floating.
struct Code4 {
    static constexpr int kBits = 4;
};
struct Code8 {
    static constexpr int kBits = 8;
};
struct CodeF8 {  // f8e4m3
    static constexpr int kBits = 8;
};
struct CodeE2M1 {  // of MXFP4
    static constexpr int kBits = 4;
};
struct f8e8m0 {  // scales of MXFP4: 2^(bits - 127), 255 is NaN
    u8 bits;
};
DEVICE float to_float(f8e8m0 scale) {
    // 2^-127 is subnormal.
    return as_float(scale.bits == 0     ? 0x00400000u
                    : scale.bits == 255 ? 0x7fc00000u
                                        : u32(scale.bits) << 23);
}
// Exponent and mantissa into f32's places, 126 = 127 - 1 below; the product renormalises 0.5.
DEVICE float e2m1_to_float(u32 code) {
    const float magnitude = as_float((code & 7u) << 22) * as_float(0x7e800000u);
    return as_float(as_u32(magnitude) | (code & 8u) << 28);
}
template <int kValue>
struct ConstantZero {};
struct IntegerZero {};
template <class T>
struct FloatZero {};

constexpr int kCodeGroup = 32;

// K columns in blocks of kBlock (0: one for the row).
template <class CodeType, i64 K, i64 kBlock, class ScaleType, class ZeroType>
struct Quantized {
    static_assert(CodeType::kBits == 4 || CodeType::kBits == 8);
    using Code = CodeType;
    using Scale = ScaleType;
    using Zero = ZeroType;
    static constexpr i64 kColumns = K;
    static constexpr i64 kBlockSize = kBlock > 0 ? kBlock : round_up<i64>(K, kCodeGroup);
    static constexpr i64 kBlocks = kBlock > 0 ? ceil_div<i64>(K, kBlock) : 1;
    static constexpr i64 kRowBytes = ceil_div<i64>(K, kCodeGroup) * (kCodeGroup * Code::kBits / 8);
};

template <class W>
struct Weights;

template <class Q>
struct QuantizedRow {
    const u8* codes;
    const typename Q::Scale* scales;
    const u8* zeros;
};

template <class Code, i64 K, i64 kBlock, class Scale, class Zero>
struct Weights<Quantized<Code, K, kBlock, Scale, Zero>> {
    using Q = Quantized<Code, K, kBlock, Scale, Zero>;
    // Of products of many tokens. 11 bits hold every code exactly; (code - zero point) * scale is
    // rounded to 2^-11 of itself where it is 2^-14 and more, to 2^-25 below, and is infinite from
    // 65520 on.
    using Staged = f16;
    static constexpr bool kPlain = false;
    using Row = QuantizedRow<Q>;

    // 16 bytes of codes.
    static DEVICE constexpr int width(i64) { return 128 / Code::kBits; }

    static DEVICE constexpr i64 zero_bytes(IntegerZero) {
        return ceil_div<i64>(Q::kBlocks * Code::kBits, 8);
    }
    template <class T>
    static DEVICE constexpr i64 zero_bytes(FloatZero<T>) {
        return Q::kBlocks * i64(sizeof(T));
    }
    template <int kValue>
    static DEVICE constexpr i64 zero_bytes(ConstantZero<kValue>) {
        return 0;
    }

    static DEVICE Row row(const Q* base, i64 r, i64 rows, i64) {
        const u8* bytes = reinterpret_cast<const u8*>(base);
        i64 scales = round_up<i64>(rows * Q::kRowBytes, 64);
        i64 zeros = round_up<i64>(scales + rows * Q::kBlocks * i64(sizeof(Scale)), 64);
        return {bytes + r * Q::kRowBytes,
                reinterpret_cast<const Scale*>(bytes + scales) + r * Q::kBlocks,
                bytes + zeros + r * zero_bytes(Zero())};
    }

    static DEVICE constexpr i64 row_bytes(i64) { return Q::kRowBytes; }

    template <int kValue>
    static DEVICE float zero(const u8*, i64, ConstantZero<kValue>) {
        return float(kValue);
    }
    static DEVICE float zero(const u8* zeros, i64 block, IntegerZero) {
        if constexpr (Code::kBits == 8) return float(zeros[block]);
        return float(zeros[block / 2] >> (block % 2 * 4) & 15);
    }
    template <class T>
    static DEVICE float zero(const u8* zeros, i64 block, FloatZero<T>) {
        return to_float(reinterpret_cast<const T*>(zeros)[block]);
    }

    // Elements [k, k + N) of the row, k a multiple of N = width().
    template <int N>
    static DEVICE Floats<N> load(const Row& row, i64 k) {
        static_assert(N == width(0));
        Vector<u32, 4> words = *reinterpret_cast<const Vector<u32, 4>*>(
            row.codes + k / kCodeGroup * (kCodeGroup * Code::kBits / 8) +
            k % kCodeGroup * Code::kBits / 8);
        Floats<N> out;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            u32 byte = words[i / 4] >> (i % 4 * 8) & 0xffu;
            if constexpr (Same<Code, CodeE2M1>::value) {
                out[i] = e2m1_to_float(byte);
                out[16 + i] = e2m1_to_float(byte >> 4);
            } else if constexpr (Code::kBits == 4) {
                out[i] = float(byte & 15u);
                out[16 + i] = float(byte >> 4);
            } else if constexpr (Same<Code, CodeF8>::value) {
                out[i] = f8e4m3_to_float(byte);
            } else {
                out[i] = float(byte);
            }
        }
        // A block of 16 or more serves whole runs of 16 elements; smaller ones are looked up each.
        constexpr int kRun = Q::kBlockSize % 16 == 0 ? 16 : 1;
#pragma unroll
        for (int i = 0; i < N; i += kRun) {
            // The padding of the last group has no block of its own.
            i64 block = min<i64>((k + i) / Q::kBlockSize, Q::kBlocks - 1);
            float scale = to_float(row.scales[block]), offset = zero(row.zeros, block, Zero());
#pragma unroll
            for (int j = i; j < i + kRun; ++j) out[j] = (out[j] - offset) * scale;
        }
        return out;
    }
};

}  // namespace cleave
