// SPDX-License-Identifier: Apache-2.0
// Elements of tensors beyond the prelude's floating types: small integers, two 4-bit ones a byte (the first in the
// low half), and f8e4m3 (OCP 8-bit FN: no infinities). read() gives an element as f32, exactly where f32 can.
#pragma once

#include "prelude.h"

namespace cleave {

using u8 = __UINT8_TYPE__;
using i8 = __INT8_TYPE__;
using i16 = __INT16_TYPE__;
struct int4 {
    u8 bits;
};
struct uint4 {
    u8 bits;
};
struct f8e4m3 {
    u8 bits;
};

CLEAVE_INLINE float read(const float* p, i64 i) { return p[i]; }
CLEAVE_INLINE float read(const f16* p, i64 i) { return load_one(p + i); }
CLEAVE_INLINE float read(const bf16* p, i64 i) { return load_one(p + i); }
CLEAVE_INLINE i32 read(const u8* p, i64 i) { return p[i]; }
CLEAVE_INLINE i32 read(const i8* p, i64 i) { return p[i]; }
CLEAVE_INLINE i32 read(const i16* p, i64 i) { return p[i]; }
CLEAVE_INLINE i32 read(const i32* p, i64 i) { return p[i]; }
CLEAVE_INLINE i64 read(const i64* p, i64 i) { return p[i]; }
CLEAVE_INLINE i32 read(const uint4* p, i64 i) { return (p[i / 2].bits >> (i % 2 * 4)) & 15; }
CLEAVE_INLINE i32 read(const int4* p, i64 i) {
    i32 v = (p[i / 2].bits >> (i % 2 * 4)) & 15;
    return v < 8 ? v : v - 16;
}
CLEAVE_INLINE float read(const f8e4m3* p, i64 i) {
    u32 bits = p[i].bits;
    u32 sign = (bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    if (magnitude == 0x7fu) return __builtin_nanf("");
    // The exponent is rebased by an exact product, which also makes subnormals normal.
    float value = __builtin_bit_cast(float, magnitude << 20) * 0x1p120f;
    return __builtin_bit_cast(float, __builtin_bit_cast(u32, value) | sign);
}

// A number as an element; reals become integers towards zero.
template <class From>
CLEAVE_INLINE void write(float* p, From value) {
    *p = static_cast<float>(value);
}
template <class From>
CLEAVE_INLINE void write(f16* p, From value) {
    store_one(p, static_cast<float>(value));
}
template <class From>
CLEAVE_INLINE void write(bf16* p, From value) {
    store_one(p, static_cast<float>(value));
}
template <class To, class From>
CLEAVE_INLINE void write(To* p, From value) {
    *p = static_cast<To>(value);
}

}  // namespace cleave
