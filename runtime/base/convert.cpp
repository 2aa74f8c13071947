// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/convert.h"

#include <cmath>

#include "runtime/base/errors.h"

namespace cleave {

float f16_to_f32(uint16_t bits) {
    uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0)
        return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
    float subnormal = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -subnormal : subnormal;
}

uint16_t f32_to_f16(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to infinity
    if (magnitude < 0x38800000u) {  // subnormal: the FPU rounds to even for us
        float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
        return sign | static_cast<uint16_t>(std::nearbyint(scaled));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

float f8e4m3_to_f32(uint8_t bits) {
    float sign = bits & 0x80u ? -1.0f : 1.0f;
    int exponent = (bits >> 3) & 0xf;
    int mantissa = bits & 7;
    if (exponent == 15 && mantissa == 7) return std::nanf("");
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
    return sign * std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
}

uint8_t f32_to_f8e4m3(float value) {
    uint8_t sign = std::signbit(value) ? 0x80 : 0;
    if (std::isnan(value)) return sign | 0x7f;
    float magnitude = std::fabs(value);
    if (magnitude >= 448.0f) return sign | 0x7e;
    if (magnitude < 0x1p-6f) return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 512.0f));
    int exponent = std::ilogb(magnitude);
    int code = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));  // 8..16
    return sign | static_cast<uint8_t>(((exponent + 7) << 3) + (code - 8));
}

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
            for (int64_t i = 0; i < count; ++i) out[i] = f32_to_f16(load(i));
            return;
        }
        case DType::kBF16: {
            auto* out = static_cast<uint16_t*>(destination);
            for (int64_t i = 0; i < count; ++i) out[i] = f32_to_bf16(load(i));
            return;
        }
        case DType::kF8E4M3: {
            auto* out = static_cast<uint8_t*>(destination);
            for (int64_t i = 0; i < count; ++i) out[i] = f32_to_f8e4m3(load(i));
            return;
        }
        default: break;
    }
    CHECK(false) << "no conversion to " << dtype_name(to);
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
                             [&](int64_t i) { return f16_to_f32(read(i, uint16_t{})); });
        case DType::kBF16:
            return store_all(to, destination, count,
                             [&](int64_t i) { return bf16_to_f32(read(i, uint16_t{})); });
        case DType::kF8E4M3:
            return store_all(to, destination, count,
                             [&](int64_t i) { return f8e4m3_to_f32(read(i, uint8_t{})); });
        default: break;
    }
    CHECK(false) << "no conversion from " << dtype_name(from);
}

}  // namespace cleave
