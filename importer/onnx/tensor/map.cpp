// SPDX-License-Identifier: Apache-2.0
// Operators that compute each element of their result from one element of each operand.
#include "importer/onnx/tensor/map.h"

#include <algorithm>

#include "importer/onnx/probe/tensor.h"

namespace cleave::importer::from_onnx {
namespace {

bool is_computed(DType dtype) {
    switch (dtype) {
        case DType::kF32:
        case DType::kF16:
        case DType::kBF16:
        case DType::kInt8:
        case DType::kUInt8:
        case DType::kInt16:
        case DType::kInt32:
        case DType::kInt64:
        case DType::kBool: return true;
        default: return false;
    }
}

bool is_one_of(const std::string& op, std::initializer_list<std::string_view> ops) {
    return std::find(ops.begin(), ops.end(), op) != ops.end();
}

// Leaves out dimensions of one, and joins neighbours that every operand walks through in one go.
void collapse(std::vector<int64_t>& dims, std::vector<std::vector<int64_t>>& strides) {
    std::vector<int64_t> kept;
    std::vector<std::vector<int64_t>> walked(strides.size());
    for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[i] == 1) continue;
        bool joins = !kept.empty();
        for (size_t s = 0; s < strides.size() && joins; ++s)
            joins = walked[s].back() == strides[s][i] * dims[i];
        if (joins)
            kept.back() *= dims[i];
        else
            kept.push_back(dims[i]);
        for (size_t s = 0; s < strides.size(); ++s) {
            if (joins) walked[s].pop_back();
            walked[s].push_back(strides[s][i]);
        }
    }
    dims = std::move(kept);
    strides = std::move(walked);
}

}  // namespace

void write_map(TensorReader& r, DType to, std::vector<int64_t> shape,
               std::vector<MapOperand> from) {
    TensorReader::require(is_computed(to), "it gives {}, which is not computed", to);
    std::vector<std::vector<int64_t>> strides;
    const int64_t elements = product(shape);
    for (size_t i = 0; i < from.size(); ++i) {
        const TensorType& type = r.operand(from[i].input, fmt::format("x{}", i));
        TensorReader::require(is_computed(type.dtype), "its input {} is {}, which is not computed",
                              from[i].input, type.dtype);
        strides.push_back(std::move(from[i].strides));
        r.number(fmt::format("offset{}", i), from[i].offset);
    }
    std::vector<int64_t> dims = shape;
    collapse(dims, strides);
    constexpr size_t kMostDims = 6;
    TensorReader::require(dims.size() <= kMostDims, "it walks over {} dimensions; {} are computed",
                          dims.size(), kMostDims);
    r.numbers("dims", dims);
    for (size_t i = 0; i < strides.size(); ++i) r.numbers(fmt::format("strides{}", i), strides[i]);
    r.number("operands", static_cast<int64_t>(from.size()));
    r.flops(static_cast<double>(elements));
    r.result(0, "y", {to, std::move(shape)});
}

void read_elementwise(TensorReader& r) {
    const std::string& op = r.node().op;
    const size_t count = r.node().in.size();
    std::vector<const TensorType*> types;
    std::vector<int64_t> shape;
    for (size_t i = 0; i < count; ++i) {
        types.push_back(&r.type(i, "operand"));
        std::vector<int64_t> joined;
        TensorReader::require(broadcast(shape, types.back()->shape, joined),
                              "its inputs do not broadcast: {} and {}", shape_text(shape),
                              shape_text(types.back()->shape));
        shape = std::move(joined);
    }
    TensorReader::require(count >= 1 && count <= 3, "it has {} inputs; up to 3 are computed",
                          count);
    const TensorType& last = *types.back();
    for (size_t i = op == "Where" ? 1 : 0; i < count; ++i)
        TensorReader::require(types[i]->dtype == last.dtype, "its inputs are {} and {}",
                              types[i]->dtype, last.dtype);
    const bool integers = !is_floating(last.dtype);
    TensorReader::require(
        !integers || !is_one_of(op, {"Sqrt", "Exp", "Tanh", "Sigmoid", "Erf", "Reciprocal", "Round",
                                     "Ceil", "Floor", "Swish"}),
        "it is computed for floating types only, and this is {}", last.dtype);
    TensorReader::require(op != "Mod" || (integers && r.node().integer("fmod", 0) == 0),
                          "it is computed for integers and fmod = 0 only");
    TensorReader::require(op != "Clip" || count == 3, "it needs both bounds as inputs");
    TensorReader::require(op != "Where" || types[0]->dtype == DType::kBool, "its condition is {}",
                          types[0]->dtype);
    if (op == "Swish") r.real("alpha", r.node().real("alpha", 1.0));
    const bool logical = is_one_of(
        op, {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not"});
    std::vector<MapOperand> from;
    for (size_t i = 0; i < count; ++i)
        from.push_back({i, broadcast_strides(types[i]->shape, shape), 0});
    write_map(r, logical ? DType::kBool : last.dtype, shape, std::move(from));
}

void read_cast(TensorReader& r) {
    const TensorType& x = r.type(0, "input");
    DType to = x.dtype;
    if (r.node().op == "CastLike") {
        to = r.type(1, "target_type").dtype;
    } else if (r.node().op == "Cast") {
        const auto type = static_cast<int32_t>(r.node().integer("to", 0));
        const std::optional<DType> dtype = dtype_of(type);
        TensorReader::require(dtype.has_value(), "it casts to {}", elem_type_name(type));
        to = *dtype;
    }
    write_map(r, to, x.shape, {{0, dense_strides(x.shape), 0}});
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t n = 1;
    for (size_t i = shape.size(); i-- > 0; n *= shape[i]) strides[i] = n;
    return strides;
}

}  // namespace cleave::importer::from_onnx
