// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/dtype.h"

namespace cleave {
namespace {

const DTypeRow& row(DType dtype) { return kDTypes.at(static_cast<size_t>(dtype)); }

}  // namespace

std::string_view dtype_name(DType dtype) { return row(dtype).name; }

std::optional<DType> parse_dtype(std::string_view name) {
    for (const DTypeRow& r : kDTypes)
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
