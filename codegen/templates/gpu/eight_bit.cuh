// SPDX-License-Identifier: Apache-2.0
// Elements of 8 bits: f8e4m3 and int8. In: bytes; out: the same numbers as f16 or f32, both of
// which hold each of them exactly, and back by rounding to nearest even. Integer operations alone,
// but where the device converts f8e4m3 itself (sm_89 and newer).
#pragma once

#include "vectors.cuh"

namespace cleave {

// OCP 8-bit floating point, E4M3: no infinity, 0x7f is NaN.
DEVICE float f8e4m3_to_float(u32 code) {
    u32 magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
    // Exponent and mantissa into f32's places, 120 = 127 - 7 below; the product renormalises what
    // was subnormal.
    float v = as_float(magnitude << 20) * as_float(0x7b800000u);
    if (magnitude == 0x7fu) v = as_float(0x7fc00000u);
    return as_float(as_u32(v) | sign);
}

struct f8e4m3 {
    u8 bits;
};
struct int8 {
    u8 bits;  // two's complement
};

DEVICE float to_float(f8e4m3 v) { return f8e4m3_to_float(v.bits); }
// 2^23 + 128 + v has v + 128 in its last byte.
DEVICE float to_float(int8 v) { return as_float(0x4b000000u | (v.bits ^ 0x80u)) - 8388736.0f; }

// The nearest element, ties to even; |v| is at most the type's largest number.
template <>
struct FromFloat<int8> {
    // 1.5 * 2^23 + v has the rounded integer in its last byte.
    static DEVICE int8 of(float v) { return int8{u8(as_u32(v + 12582912.0f))}; }
};
template <>
struct FromFloat<f8e4m3> {
    static DEVICE f8e4m3 of(float v) {
        const u32 bits = as_u32(v), magnitude = bits & 0x7fffffffu;
        // Below 2^-6 elements are multiples of 2^-9, which 2^14 has in its last bits.
        const u32 small = as_u32(as_float(magnitude) + 16384.0f) - 0x46800000u;
        const u32 normal = ((magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20) - (120u << 3);
        return f8e4m3{u8((magnitude < 0x3c800000u ? small : normal) | (bits >> 24 & 0x80u))};
    }
};

// Four neighbours, the first in the lowest byte of `four`, as two pairs of f16, the first in the
// lower half. A NaN of f8e4m3 may become a number where the device has no conversion.
template <class T>
DEVICE Vector<u32, 2> widen_four(u32 four);
template <>
DEVICE Vector<u32, 2> widen_four<int8>(u32 four) {
    // 1024 + 128 + v has v + 128 in its last byte.
    const u32 flipped = four ^ 0x80808080u;
    const u32 low = (flipped & 0xffu) | (flipped & 0xff00u) << 8;
    const u32 high = (flipped >> 16 & 0xffu) | (flipped >> 8 & 0xff0000u);
    constexpr u32 kOne = 0x3c003c00u, kBase = 0x64006400u, kLess = 0xe480e480u;  // 1, 1024, -1152
    return {{fma_f16_pair(low | kBase, kOne, kLess), fma_f16_pair(high | kBase, kOne, kLess)}};
}
template <>
DEVICE Vector<u32, 2> widen_four<f8e4m3>(u32 four) {
#if defined(CLEAVE_F8_CONVERSION)
    return {{f8e4m3_pair_to_f16(u16(four)), f8e4m3_pair_to_f16(u16(four >> 16))}};
#else
    const u32 low = (four & 0xffu) << 8 | (four & 0xff00u) << 16;
    const u32 high = (four >> 8 & 0xff00u) | (four & 0xff000000u);
    // Exponent and mantissa into f16's places, 8 = 15 - 7 below.
    constexpr u32 kSigns = 0x80008000u, k256 = 0x5c005c00u, kZero = 0x80008000u;  // -0
    const u32 a = (low & kSigns) | (low & ~kSigns) >> 1;
    const u32 b = (high & kSigns) | (high & ~kSigns) >> 1;
    return {{fma_f16_pair(a, k256, kZero), fma_f16_pair(b, k256, kZero)}};
#endif
}

}  // namespace cleave
