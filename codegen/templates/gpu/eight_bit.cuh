// SPDX-License-Identifier: Apache-2.0
// 8-bit floating point elements.
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

}  // namespace cleave
