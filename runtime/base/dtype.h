// SPDX-License-Identifier: Apache-2.0
// Element types, named alike in every flag, file and printout: f32, f16, bf16, f8e4m3, int8, int4,
// and the integer types that ONNX graphs carry as indices. Sizes are in bits because int4 packs two
// a byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace cleave {

// Plan files hold the number: new ones go at the end.
enum class DType : uint8_t {
    kF32,
    kF16,
    kBF16,
    kF8E4M3,
    kInt8,
    kInt4,
    kF64,
    kUInt8,
    kUInt4,
    kInt16,
    kInt32,
    kInt64,
    kBool,
    kMxfp4,  // e2m1 elements of the OCP Microscaling format MXFP4, whose blocks have kF8E8M0 scales
    kF8E8M0,  // OCP Microscaling scales: 2^(e - 127), 255 is NaN
};

struct DTypeRow {
    DType dtype;
    std::string_view name;
    int bits;
};
// In the order of the enumeration.
inline constexpr std::array kDTypes{
    DTypeRow{DType::kF32, "f32", 32},      DTypeRow{DType::kF16, "f16", 16},
    DTypeRow{DType::kBF16, "bf16", 16},    DTypeRow{DType::kF8E4M3, "f8e4m3", 8},
    DTypeRow{DType::kInt8, "int8", 8},     DTypeRow{DType::kInt4, "int4", 4},
    DTypeRow{DType::kF64, "f64", 64},      DTypeRow{DType::kUInt8, "uint8", 8},
    DTypeRow{DType::kUInt4, "uint4", 4},   DTypeRow{DType::kInt16, "int16", 16},
    DTypeRow{DType::kInt32, "int32", 32},  DTypeRow{DType::kInt64, "int64", 64},
    DTypeRow{DType::kBool, "bool", 8},     DTypeRow{DType::kMxfp4, "mxfp4", 4},
    DTypeRow{DType::kF8E8M0, "f8e8m0", 8},
};
inline constexpr DType kLastDType = kDTypes.back().dtype;
static_assert(static_cast<size_t>(kLastDType) + 1 == kDTypes.size());

std::string_view dtype_name(DType dtype);

// The dtype of that name, or nothing.
std::optional<DType> parse_dtype(std::string_view name);

int dtype_bits(DType dtype);

// Bytes of `count` packed elements, rounded up to a whole byte.
int64_t dtype_bytes(DType dtype, int64_t count);

// f32, f16, bf16, f8e4m3 and f64.
bool is_floating(DType dtype);

}  // namespace cleave

template <>
struct fmt::formatter<cleave::DType> : fmt::formatter<std::string_view> {
    template <class Context>
    auto format(cleave::DType d, Context& context) const {
        return fmt::formatter<std::string_view>::format(cleave::dtype_name(d), context);
    }
};
