// SPDX-License-Identifier: Apache-2.0
// DequantizeLinear, y = (x - zero_point) * scale, and QuantizeLinear, y = x / scale + zero_point
// rounded to even, with one scale for the tensor, for each slice of an axis, or for each block of
// one; DynamicQuantizeLinear, whose scale follows from the least and the largest element.
#include "importer/onnx/tensor/tensor_reader.h"

namespace cleave::importer::from_onnx {
namespace {

// Which scale each element has.
void write_blocks(TensorReader& r, const TensorType& x, const TensorType& scale) {
    const int64_t block = r.node().integer("block_size", 0);
    TensorReader::require(block >= 0 && block <= kMostTensorElements, "its block_size is {}",
                          block);
    int64_t outer = 1, axis_size = 1, inner = x.count();
    if (scale.count() > 1 || block > 0) {
        const int64_t axis = TensorReader::axis_of(r.node().integer("axis", 1), x.rank(), "axis");
        axis_size = x.shape[axis];
        for (int64_t i = 0; i < axis; ++i) outer *= x.shape[i];
        inner = x.count() / outer / axis_size;
        std::vector<int64_t> wanted{axis_size};
        if (block > 0) {
            wanted = x.shape;
            wanted[axis] = (axis_size + block - 1) / block;
        }
        TensorReader::require(scale.shape == wanted, "its x_scale {} is not {}",
                              shape_text(scale.shape), shape_text(wanted));
    }
    r.number("outer", outer);
    r.number("axis", axis_size);
    r.number("inner", inner);
    r.number("block", block);
}

}  // namespace

void read_dequantize_linear(TensorReader& r) {
    const TensorType &x = r.operand(0, "x"), &scale = r.operand(1, "x_scale");
    const TensorType* zero = r.optional_operand(2, "x_zero_point");
    switch (x.dtype) {
        case DType::kInt8:
        case DType::kUInt8:
        case DType::kInt4:
        case DType::kUInt4:
        case DType::kInt16:
        case DType::kInt32:
        case DType::kF8E4M3: break;
        default: r.refuse("its input x is {}, which is not dequantised", x.dtype);
    }
    r.require_float(scale, "x_scale");
    r.require(!zero || (zero->dtype == x.dtype && zero->count() == scale.count()),
              "its x_zero_point does not go with x and x_scale");
    write_blocks(r, x, scale);
    DType to = scale.dtype;
    if (const int64_t asked = r.node().integer("output_dtype", 0); asked != 0) {
        const std::optional<DType> dtype = dtype_of(static_cast<int32_t>(asked));
        r.require(dtype.has_value(), "its output_dtype is {}",
                  elem_type_name(static_cast<int32_t>(asked)));
        to = *dtype;
    }
    r.require_float({to, {}}, "y");
    r.flops(2.0 * static_cast<double>(x.count()));
    r.result(0, "y", {to, x.shape});
}

void read_quantize_linear(TensorReader& r) {
    const TensorType &x = r.operand(0, "x"), &scale = r.operand(1, "y_scale");
    const TensorType* zero = r.optional_operand(2, "y_zero_point");
    r.require_float(x, "x");
    r.require_float(scale, "y_scale");
    r.require(zero || r.node().integer("output_dtype", 0) == 0, "it has no y_zero_point");
    const DType to = zero ? zero->dtype : DType::kUInt8;
    r.require(to == DType::kInt8 || to == DType::kUInt8 || to == DType::kInt16,
              "it gives {}; int8, uint8 and int16 are computed", to);
    r.require(!zero || zero->count() == scale.count(), "its zero points do not go with its scales");
    write_blocks(r, x, scale);
    r.flops(4.0 * static_cast<double>(x.count()));
    r.result(0, "y", {to, x.shape});
}

void read_dynamic_quantize_linear(TensorReader& r) {
    const TensorType& x = r.operand(0, "x");
    r.require(x.dtype == DType::kF32, "its input is {}", x.dtype);
    r.number("elements", x.count());
    r.flops(6.0 * static_cast<double>(x.count()));
    r.result(0, "y", {DType::kUInt8, x.shape});
    r.result(1, "y_scale", {DType::kF32, {}});
    r.result(2, "y_zero_point", {DType::kUInt8, {}});
}

}  // namespace cleave::importer::from_onnx
