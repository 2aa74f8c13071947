// SPDX-License-Identifier: Apache-2.0
// Which operators are computed as they are, and what their readers share.
#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "importer/onnx/tensor/tensor_reader.h"

namespace cleave::importer::from_onnx {
namespace {

struct Row {
    std::string_view op;
    void (*read)(TensorReader&);
};
constexpr std::array kReaders{
    Row{"Attention", read_attention},
    Row{"DequantizeLinear", read_dequantize_linear},
    Row{"DynamicQuantizeLinear", read_dynamic_quantize_linear},
    Row{"QuantizeLinear", read_quantize_linear},
    Row{"RMSNormalization", read_rms_normalization},
    Row{"RotaryEmbedding", read_rotary_embedding},
    Row{"Softmax", read_softmax},
    Row{"MatMul", read_matmul},
    Row{"MatMulInteger", read_matmul},
    Row{"Gather", read_gather},
    Row{"GatherElements", read_gather},
    Row{"GatherND", read_gather_nd},
    Row{"Pad", read_pad},
    Row{"TensorScatter", read_tensor_scatter},
    Row{"Concat", read_concat},
    Row{"Split", read_split},
    Row{"Transpose", read_transpose},
    Row{"Expand", read_expand},
    Row{"Slice", read_slice},
    Row{"Reshape", read_reshape},
    Row{"Squeeze", read_reshape},
    Row{"Unsqueeze", read_reshape},
    Row{"Flatten", read_reshape},
    Row{"ReduceMean", read_reduce},
    Row{"ReduceSum", read_reduce},
    Row{"ReduceMax", read_reduce},
    Row{"ReduceMin", read_reduce},
    Row{"Cast", read_cast},
    Row{"CastLike", read_cast},
    Row{"Identity", read_cast},
    Row{"Add", read_elementwise},
    Row{"Sub", read_elementwise},
    Row{"Mul", read_elementwise},
    Row{"Div", read_elementwise},
    Row{"Mod", read_elementwise},
    Row{"Min", read_elementwise},
    Row{"Max", read_elementwise},
    Row{"And", read_elementwise},
    Row{"Or", read_elementwise},
    Row{"Not", read_elementwise},
    Row{"Equal", read_elementwise},
    Row{"Less", read_elementwise},
    Row{"LessOrEqual", read_elementwise},
    Row{"Greater", read_elementwise},
    Row{"GreaterOrEqual", read_elementwise},
    Row{"Where", read_elementwise},
    Row{"Neg", read_elementwise},
    Row{"Abs", read_elementwise},
    Row{"Sqrt", read_elementwise},
    Row{"Exp", read_elementwise},
    Row{"Tanh", read_elementwise},
    Row{"Sigmoid", read_elementwise},
    Row{"Erf", read_elementwise},
    Row{"Reciprocal", read_elementwise},
    Row{"Round", read_elementwise},
    Row{"Ceil", read_elementwise},
    Row{"Floor", read_elementwise},
    Row{"Relu", read_elementwise},
    Row{"Clip", read_elementwise},
    Row{"Swish", read_elementwise},
};

}  // namespace

void read_tensor_operator(TensorReader& reader) {
    const Node& node = reader.node();
    const auto found = std::find_if(kReaders.begin(), kReaders.end(), [&](const Row& row) {
        return node.domain.empty() && row.op == node.op;
    });
    TensorReader::require(found != kReaders.end(), "Cleave computes no {}{}{}", node.domain,
                          node.domain.empty() ? "" : ".", node.op);
    found->read(reader);
}

namespace {

void require_sane(const TensorType& type, std::string_view name) {
    const auto positive = [](int64_t d) { return d > 0; };
    TensorReader::require(std::all_of(type.shape.begin(), type.shape.end(), positive) &&
                              type.count() <= kMostTensorElements,
                          "{} is {}; 1 to {} elements are computed", name, shape_text(type.shape),
                          kMostTensorElements);
}

}  // namespace

const TensorType& TensorReader::type(size_t i, std::string_view name) const {
    const Ref ref = node_.input(i);
    require(ref != kNone, "its input {} is not given", name);
    require(types_[i].has_value(),
            "the shape or the element type of its input {} ('{}') is not known, or is none that "
            "Cleave computes with",
            name, model_.values[ref].name);
    const TensorType& type = *types_[i];
    require_sane(type, name);
    return type;
}

const TensorType& TensorReader::operand(size_t i, std::string_view name) {
    const TensorType& type = this->type(i, name);
    attrs_.operands.push_back({std::string(name), 0, type.dtype, type.shape});
    operand_refs_.push_back(node_.input(i));
    return type;
}

std::optional<std::vector<int64_t>> TensorReader::integers(size_t i,
                                                           std::string_view attribute) const {
    if (!has(i)) return attribute.empty() ? std::nullopt : node_.integers(attribute);
    const Tensor* data = probe_.data(node_.input(i));
    if (!data || data->real) return std::nullopt;
    return data->integers;
}

std::optional<std::vector<int64_t>> TensorReader::shape_of_result(size_t i) const {
    const Dims* dims = probe_.shape(node_.output(i));
    return dims ? std::optional(*dims) : std::nullopt;
}

void TensorReader::result(size_t i, std::string_view name, TensorType type) {
    if (!wants(i)) return;
    if (type.count() == 0) {
        empty_results_.emplace_back(node_.output(i), std::move(type));
        return;
    }
    require_sane(type, name);
    attrs_.results.push_back({std::string(name), 0, type.dtype, std::move(type.shape)});
    result_refs_.push_back(node_.output(i));
}

void TensorReader::require_float(const TensorType& type, std::string_view name) {
    require(type.dtype == DType::kF32 || type.dtype == DType::kF16 || type.dtype == DType::kBF16,
            "its input {} is {}; f32, f16 and bf16 are computed", name, type.dtype);
}

int64_t TensorReader::axis_of(int64_t axis, int64_t rank, std::string_view name) {
    require(axis >= -rank && axis < rank, "its {} {} is outside {} dimensions", name, axis, rank);
    return axis < 0 ? axis + rank : axis;
}

std::string shape_text(std::span<const int64_t> shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace cleave::importer::from_onnx
