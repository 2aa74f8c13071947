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
    QuantizedType{DType::kUInt8, DType::kUInt8, "Code8", 128, detail::as_number},
    QuantizedType{DType::kUInt4, DType::kUInt4, "Code4", 8, detail::as_number},
};

// Null: weights of that type are not quantised.
inline const QuantizedType* find_quantized_type(DType dtype) {
    const auto found = std::find_if(kQuantizedTypes.begin(), kQuantizedTypes.end(),
                                    [&](const QuantizedType& t) { return t.dtype == dtype; });
    return found == kQuantizedTypes.end() ? nullptr : &*found;
}

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
