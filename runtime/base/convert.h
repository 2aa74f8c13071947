// SPDX-License-Identifier: Apache-2.0
// Scalar conversions between f32 and the narrower floating types, round to nearest even, on the
// CPU. f16: IEEE 754 binary16; bf16: upper half of f32; f8e4m3: OCP 8-bit FN format (no
// infinities).
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/base/dtype.h"

namespace cleave {

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t f32_to_bf16(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
float f8e4m3_to_f32(uint8_t bits);
uint8_t f32_to_f8e4m3(float value);  // saturates at +-448

// Converts `count` elements of `from` at `source` to `to` at `destination`; the ranges must not
// overlap. Both types must be floating; anything else is an InternalError.
void convert_elements(DType from, const void* source, DType to, void* destination, int64_t count);

}  // namespace cleave
