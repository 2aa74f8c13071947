// SPDX-License-Identifier: Apache-2.0
// The types of quantised weights: one row each. What a code is on a device, what `--dtype` makes of
// a dense matrix, and what kernels call it; the importer, tiles, stubs, options and messages read
// the row. Beside it, a type decodes its codes in codegen/templates/host/quantized.h and
// codegen/templates/gpu/quantized_rows.cuh.
//
// A weight is (value(code) - zero point) * scale, with one scale for each block of columns.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/convert.h"
#include "runtime/base/dtype.h"

namespace cleave::importer {

struct QuantizedType {
    DType dtype;  // of the weight, as files, flags and printouts name it
    DType code;   // of its codes on devices: signed integers become unsigned, see quantized_shard.h
    std::string_view spelling;  // of `code` in the templates
    int middle;                 // the device's code of 0 where integers are centred; floats: 0
    float (*value)(int code);   // of a device's code

    // What `--dtype` makes. `round` is null: it makes none.
    int64_t block = 0;  // 0: one scale for a row
    DType scale = DType::kF32;
    float (*scale_of)(float extreme) = nullptr;  // the element of largest magnitude, with its sign
    // Device's codes of x * inverse, the nearest ones.
    void (*round)(const float* x, int64_t count, float inverse, uint8_t* codes) = nullptr;

    // Files have it in that form alone: with these blocks and scales, without zero points.
    bool one_form = false;

    int bits() const { return dtype_bits(dtype); }
    bool is_integer() const { return middle != 0; }
    bool is_signed() const { return is_integer() && dtype != code; }
};

namespace detail {

inline float as_number(int code) { return static_cast<float>(code); }

// `+ 0.5` and truncation round to nearest: what is rounded is positive.
template <int kMiddle>
void round_integers(const float* x, int64_t count, float inverse, uint8_t* codes) {
    constexpr float kHalfUp = kMiddle + 0.5f, kMost = 2 * kMiddle - 0.5f;
    for (int64_t i = 0; i < count; ++i)
        codes[i] = static_cast<uint8_t>(std::clamp(x[i] * inverse + kHalfUp, 0.0f, kMost));
}

inline void round_f8e4m3(const float* x, int64_t count, float inverse, uint8_t* codes) {
    std::array<float, 256> scaled;
    for (int64_t i = 0; i < count; i += std::ssize(scaled)) {
        const int64_t part = std::min(count - i, std::ssize(scaled));
        for (int64_t k = 0; k < part; ++k) scaled[static_cast<size_t>(k)] = x[i + k] * inverse;
        convert_elements(DType::kF32, scaled.data(), DType::kF8E4M3, codes + i, part);
    }
}

// Elements of MXFP4 (OCP Microscaling Formats v1.0): sign, two bits of exponent, one of mantissa.
inline float e2m1(int code) {
    constexpr std::array kMagnitudes{0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    const float magnitude = kMagnitudes[static_cast<size_t>(code & 7)];
    return code & 8 ? -magnitude : magnitude;
}
// To nearest, ties to the even mantissa; 6 and more become 6.
inline void round_e2m1(const float* x, int64_t count, float inverse, uint8_t* codes) {
    for (int64_t i = 0; i < count; ++i) {
        const float a = std::abs(x[i] * inverse);
        const int magnitude = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                              (a >= 3.5f) + (a > 5.0f);
        codes[i] = static_cast<uint8_t>(magnitude | (x[i] < 0 ? 8 : 0));
    }
}
// The same: the largest power of two within the block, by the largest one within e2m1 (4).
inline float e8m0_scale(float extreme) {
    return std::ldexp(1.0f, std::max(extreme == 0 ? -127 : std::ilogb(extreme) - 2, -127));
}

}  // namespace detail

// int4 and int8 in blocks are the formats Q4_0 and Q8_0 of GGUF (ggml-quants.c). 448 is the largest
// number of f8e4m3.
inline constexpr std::array kQuantizedTypes{
    QuantizedType{DType::kF8E4M3, DType::kF8E4M3, "CodeF8", 0,
                  [](int code) { return f8e4m3_to_f32(static_cast<uint8_t>(code)); }, 0,
                  DType::kF32, [](float extreme) { return std::abs(extreme) / 448.0f; },
                  detail::round_f8e4m3},
    QuantizedType{DType::kInt8, DType::kUInt8, "Code8", 128, detail::as_number, 32, DType::kF16,
                  [](float extreme) { return std::abs(extreme) / 127; },
                  detail::round_integers<128>},
    QuantizedType{DType::kInt4, DType::kUInt4, "Code4", 8, detail::as_number, 32, DType::kF16,
                  [](float extreme) { return extreme / -8; }, detail::round_integers<8>},
    QuantizedType{DType::kMxfp4, DType::kMxfp4, "CodeE2M1", 0, detail::e2m1, 32, DType::kF8E8M0,
                  detail::e8m0_scale, detail::round_e2m1, true},
    QuantizedType{DType::kUInt8, DType::kUInt8, "Code8", 128, detail::as_number},
    QuantizedType{DType::kUInt4, DType::kUInt4, "Code4", 8, detail::as_number},
};

// Null: weights of that type are not quantised.
inline const QuantizedType* find_quantized_type(DType dtype) {
    const auto found = std::find_if(kQuantizedTypes.begin(), kQuantizedTypes.end(),
                                    [&](const QuantizedType& t) { return t.dtype == dtype; });
    return found == kQuantizedTypes.end() ? nullptr : &*found;
}

// Of a weight that is quantised: InternalError for another type.
const QuantizedType& quantized_type(DType dtype);

// Whether `--dtype` of that type quantises, rather than converts from one floating type to another.
inline bool is_quantizing(DType dtype) {
    const QuantizedType* type = find_quantized_type(dtype);
    return type && type->round;
}

// The type that GPUs' products of many tokens multiply weights of `dtype` as.
inline DType staged_type(DType dtype) {
    return dtype_bits(dtype) > 16 || dtype == DType::kBF16 ? dtype : DType::kF16;
}

// "int8, int4": what `--dtype` quantises to, or every type of quantised weights.
inline std::string quantized_type_names(bool quantizing_only) {
    std::string names;
    for (const QuantizedType& t : kQuantizedTypes)
        if (t.round || !quantizing_only)
            names += (names.empty() ? "" : ", ") + std::string(dtype_name(t.dtype));
    return names;
}
// What `--dtype` takes.
inline std::string weight_dtype_names() { return "f32, f16, bf16, " + quantized_type_names(true); }

}  // namespace cleave::importer
