// SPDX-License-Identifier: Apache-2.0
// Elements of tensors beyond the prelude's floating types: small integers, two 4-bit ones a byte
// (the first in the low half). read() gives an element as f32, or an integer as it is.
#pragma once

#include "prelude.h"

namespace cleave {

using i8 = __INT8_TYPE__;
using i16 = __INT16_TYPE__;
struct int4 {
    u8 bits;
};
struct uint4 {
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
CLEAVE_INLINE float read(const f8e4m3* p, i64 i) { return load_one(p + i); }

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
