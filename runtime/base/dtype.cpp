// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dtype.h"

#include <array>
#include <iterator>

namespace cleave {
namespace {

struct Row {
    DType dtype;
    std::string_view name;
    int bits;
};

constexpr std::array<Row, 13> kRows{{
    {DType::kF32, "f32", 32},
    {DType::kF16, "f16", 16},
    {DType::kBF16, "bf16", 16},
    {DType::kF8E4M3, "f8e4m3", 8},
    {DType::kInt8, "int8", 8},
    {DType::kInt4, "int4", 4},
    {DType::kF64, "f64", 64},
    {DType::kUInt8, "uint8", 8},
    {DType::kUInt4, "uint4", 4},
    {DType::kInt16, "int16", 16},
    {DType::kInt32, "int32", 32},
    {DType::kInt64, "int64", 64},
    {DType::kBool, "bool", 8},
}};

const Row& row(DType dtype) { return kRows.at(static_cast<size_t>(dtype)); }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
    for (const Row& r : kRows)
        if (r.name == name) return r.dtype;
    return std::nullopt;
}

int dtype_bits(DType dtype) { return row(dtype).bits; }

int64_t dtype_bytes(DType dtype, int64_t count) { return (count * dtype_bits(dtype) + 7) / 8; }

bool is_floating(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
           dtype == DType::kF8E4M3 || dtype == DType::kF64;
}

}  // namespace cleave
