// SPDX-License-Identifier: Apache-2.0
#include "importer/weights/quantized_shard.h"

#include <algorithm>

#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::importer {
namespace {

constexpr int64_t kPartAlignment = 64;

}  // namespace

const QuantizedType& quantized_type(DType dtype) {
    const QuantizedType* type = find_quantized_type(dtype);
    CLEAVE_CHECK(type) << "no weight is quantised as " << dtype_name(dtype);
    return *type;
}

bool stays_quantized(const Weight& weight, DType dtype) {
    return weight.packing != Packing::kDense && dtype == weight.dtype;
}

bool has_dynamic_activations(const Graph& graph) {
    return std::any_of(graph.weights.begin(), graph.weights.end(), [](const Weight& w) {
        return w.packing != Packing::kDense && w.quantization.dynamic_activations;
    });
}

QuantizedFormat quantized_format(const Weight& weight) {
    const Quantization& q = weight.quantization;
    CLEAVE_CHECK(weight.packing != Packing::kDense) << weight.name << ": not a quantised weight";
    const QuantizedType& type = quantized_type(weight.dtype);
    QuantizedFormat f;
    f.code = type.code;
    f.block = q.block;
    f.scale = q.scale_dtype;
    f.dynamic_activations = q.dynamic_activations;
    const bool centred = weight.packing == Packing::kMatMulNBits || type.is_signed();
    f.constant_zero = centred ? type.middle : 0;
    if (!type.is_integer() || !q.zero_points.has_data()) return f;
    f.zero_points = is_floating(q.zero_point_dtype) ? ZeroPoints::kFloating : ZeroPoints::kInteger;
    f.constant_zero = 0;
    if (f.zero_points == ZeroPoints::kFloating) f.zero_point = q.zero_point_dtype;
    return f;
}

QuantizedFormat rounded_format(const QuantizedType& type) {
    QuantizedFormat f;
    f.code = type.code;
    f.block = type.block;
    f.scale = type.scale;
    f.constant_zero = type.middle;
    return f;
}

QuantizedLayout quantized_layout(const QuantizedFormat& format, int64_t rows, int64_t columns) {
    QuantizedLayout l;
    const int64_t bits = dtype_bits(format.code);
    l.row_bytes = round_up(columns, kCodeGroup) * bits / 8;
    l.blocks = format.block > 0 ? (columns + format.block - 1) / format.block : 1;
    l.scale_row_bytes = dtype_bytes(format.scale, l.blocks);
    if (format.zero_points == ZeroPoints::kInteger) l.zero_row_bytes = (l.blocks * bits + 7) / 8;
    if (format.zero_points == ZeroPoints::kFloating)
        l.zero_row_bytes = dtype_bytes(format.zero_point, l.blocks);
    l.scales_offset = round_up(rows * l.row_bytes, kPartAlignment);
    l.zeros_offset = round_up(l.scales_offset + rows * l.scale_row_bytes, kPartAlignment);
    l.bytes = format.zero_points == ZeroPoints::kConstant
                  ? l.scales_offset + rows * l.scale_row_bytes
                  : l.zeros_offset + rows * l.zero_row_bytes;
    return l;
}

}  // namespace cleave::importer
