// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/convert.h"

#include <array>
#include <limits>

#include "runtime/base/errors.h"

namespace cleave {

namespace {

// Without branches, so that loops over them become vector instructions.

// A normal value's exponent moves by a multiplication, which makes normal what was subnormal, too.
inline float widened_f16(uint16_t bits) {
    const uint32_t magnitude = uint32_t{bits & 0x7fffu} << 13;
    const float value = std::bit_cast<float>(magnitude) * 0x1p112f;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;  // infinity, NaN
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | special |
                                uint32_t{bits & 0x8000u} << 16);
}

// Signed, as vector instructions compare signed integers.
inline int32_t chosen(bool condition, int32_t yes, int32_t no) { return condition ? yes : no; }

inline uint16_t narrowed_f16(float value) {
    const auto bits = std::bit_cast<int32_t>(value);
    const int32_t magnitude = bits & 0x7fffffff;
    // Of a subnormal result: an addition that leaves the result's unit in the last place, rounded
    // by the FPU.
    const int32_t subnormal =
        std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    const int32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
    const int32_t special = chosen(magnitude > 0x7f800000, 0x7e00, 0x7c00);
    const int32_t finite = chosen(magnitude < 0x38800000, subnormal, normal);
    const int32_t result = chosen(magnitude >= 0x47800000, special, finite);
    return static_cast<uint16_t>(result | ((bits >> 16) & 0x8000));
}

inline uint8_t narrowed_f8e4m3(float value) {
    const auto bits = std::bit_cast<int32_t>(value);
    const int32_t magnitude = bits & 0x7fffffff;
    const int32_t subnormal =
        std::bit_cast<int32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000;
    const int32_t normal = (magnitude + 0x7ffff + ((magnitude >> 20) & 1) - 0x3c000000) >> 20;
    const int32_t finite = chosen(magnitude < 0x3c800000, subnormal, normal);
    const int32_t special = chosen(magnitude > 0x7f800000, 0x7f, 0x7e);
    const int32_t result = chosen(magnitude >= 0x43e00000, special, finite);  // 448 and more
    return static_cast<uint8_t>(result | ((bits >> 24) & 0x80));
}

constexpr std::array<float, 256> make_f8e4m3_values() {
    std::array<float, 256> values{};
    for (uint32_t bits = 0; bits < 256; ++bits) {
        const uint32_t exponent = (bits >> 3) & 0xf, mantissa = bits & 7;
        float value = static_cast<float>(exponent ? 8 + mantissa : mantissa) * 0x1p-9f;
        for (uint32_t e = 1; e < exponent; ++e) value *= 2;
        if ((bits & 0x7f) == 0x7f) value = std::numeric_limits<float>::quiet_NaN();
        values[bits] = bits & 0x80 ? -value : value;
    }
    return values;
}
constexpr std::array<float, 256> kF8E4M3Values = make_f8e4m3_values();

// Scales of the OCP Microscaling Formats v1.0. 2^-127 is subnormal.
inline float widened_f8e8m0(uint8_t bits) {
    const uint32_t nan_or_normal = bits == 0xff ? 0x7fc00000u : uint32_t{bits} << 23;
    return std::bit_cast<float>(bits == 0 ? 0x00400000u : nan_or_normal);
}
// Of a power of two; of another positive number the power below.
inline uint8_t narrowed_f8e8m0(float value) {
    return static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 23);
}

}  // namespace

float f16_to_f32(uint16_t bits) { return widened_f16(bits); }
uint16_t f32_to_f16(float value) { return narrowed_f16(value); }
float f8e4m3_to_f32(uint8_t bits) { return kF8E4M3Values[bits]; }
uint8_t f32_to_f8e4m3(float value) { return narrowed_f8e4m3(value); }

namespace {

template <class Load>
void store_all(DType to, void* destination, int64_t count, Load load) {
    switch (to) {
        case DType::kF32: {
            auto* out = static_cast<float*>(destination);
            for (int64_t i = 0; i < count; ++i) out[i] = load(i);
            return;
        }
        case DType::kF16: {
            auto* out = static_cast<uint16_t*>(destination);
            for (int64_t i = 0; i < count; ++i) out[i] = narrowed_f16(load(i));
            return;
        }
        case DType::kBF16: {
            auto* out = static_cast<uint16_t*>(destination);
            for (int64_t i = 0; i < count; ++i) out[i] = f32_to_bf16(load(i));
            return;
        }
        case DType::kF8E4M3: {
            auto* out = static_cast<uint8_t*>(destination);
            for (int64_t i = 0; i < count; ++i) out[i] = narrowed_f8e4m3(load(i));
            return;
        }
        case DType::kF8E8M0: {
            auto* out = static_cast<uint8_t*>(destination);
            for (int64_t i = 0; i < count; ++i) out[i] = narrowed_f8e8m0(load(i));
            return;
        }
        default: break;
    }
    CLEAVE_CHECK(false) << "no conversion to " << dtype_name(to);
}

}  // namespace

void convert_elements(DType from, const void* source, DType to, void* destination, int64_t count) {
    if (from == to) {
        std::memcpy(destination, source, static_cast<size_t>(dtype_bytes(from, count)));
        return;
    }
    // Sources may be unaligned views of a file, hence the copies out of them.
    auto read = [source]<class T>(int64_t i, T) {
        T value;
        std::memcpy(&value, static_cast<const char*>(source) + i * static_cast<int64_t>(sizeof(T)),
                    sizeof(T));
        return value;
    };
    switch (from) {
        case DType::kF32:
            return store_all(to, destination, count, [&](int64_t i) { return read(i, float{}); });
        case DType::kF64:
            return store_all(to, destination, count,
                             [&](int64_t i) { return static_cast<float>(read(i, double{})); });
        case DType::kF16:
            return store_all(to, destination, count,
                             [&](int64_t i) { return widened_f16(read(i, uint16_t{})); });
        case DType::kBF16:
            return store_all(to, destination, count,
                             [&](int64_t i) { return bf16_to_f32(read(i, uint16_t{})); });
        case DType::kF8E4M3:
            return store_all(to, destination, count,
                             [&](int64_t i) { return kF8E4M3Values[read(i, uint8_t{})]; });
        case DType::kF8E8M0:
            return store_all(to, destination, count,
                             [&](int64_t i) { return widened_f8e8m0(read(i, uint8_t{})); });
        default: break;
    }
    CLEAVE_CHECK(false) << "no conversion from " << dtype_name(from);
}

}  // namespace cleave
