// SPDX-License-Identifier: Apache-2.0
// Reductions, Softmax, and matrix products.
#include <algorithm>

#include "importer/onnx/probe/tensor.h"
#include "importer/onnx/tensor/map.h"

namespace cleave::importer::from_onnx {

void read_reduce(TensorReader& r) {
    const TensorType& x = r.operand(0, "x");
    TensorReader::require_float(x, "data");
    std::vector<bool> reduced(x.shape.size(), false);
    const bool named = r.has(1) || r.node().integers("axes");
    if (named) {
        const auto axes = r.integers(1, "axes");
        TensorReader::require(axes.has_value(), "its axes are not known");
        for (int64_t axis : *axes) reduced[TensorReader::axis_of(axis, x.rank(), "axis")] = true;
    }
    const bool any = std::find(reduced.begin(), reduced.end(), true) != reduced.end();
    if (!any) reduced.assign(reduced.size(), r.node().integer("noop_with_empty_axes", 0) == 0);
    const bool keep = r.node().integer("keepdims", 1) != 0;
    const std::vector<int64_t> dense = dense_strides(x.shape);
    std::vector<int64_t> shape, dims, strides, inner_dims, inner_strides;
    for (size_t i = 0; i < x.shape.size(); ++i) {
        if (!reduced[i] || keep) shape.push_back(reduced[i] ? 1 : x.shape[i]);
        (reduced[i] ? inner_dims : dims).push_back(x.shape[i]);
        (reduced[i] ? inner_strides : strides).push_back(dense[i]);
    }
    constexpr size_t kMost = 6;
    TensorReader::require(x.shape.size() <= kMost, "it has {} dimensions; {} are computed",
                          x.shape.size(), kMost);
    r.numbers("dims", dims);
    r.numbers("strides", strides);
    r.numbers("inner_dims", inner_dims);
    r.numbers("inner_strides", inner_strides);
    r.flops(static_cast<double>(x.count()));
    r.result(0, "y", {x.dtype, shape});
}

void read_softmax(TensorReader& r) {
    const TensorType& x = r.operand(0, "x");
    TensorReader::require_float(x, "input");
    const bool flat = r.opset() < 13;  // then all dimensions from the axis on go together
    const int64_t axis =
        TensorReader::axis_of(r.node().integer("axis", flat ? 1 : -1), x.rank(), "axis");
    int64_t outer = 1, size = 1, inner = 1;
    for (int64_t i = 0; i < x.rank(); ++i)
        (i < axis ? outer : i == axis || flat ? size : inner) *= x.shape[i];
    r.number("outer", outer);
    r.number("axis", size);
    r.number("inner", inner);
    r.flops(20.0 * static_cast<double>(x.count()));
    r.result(0, "y", x);
}

void read_matmul(TensorReader& r) {
    TensorType a = r.operand(0, "A"), b = r.operand(1, "B");
    const bool integers = r.node().op == "MatMulInteger";
    for (const TensorType* t : {&a, &b})
        if (integers)
            TensorReader::require(t->dtype == DType::kInt8 || t->dtype == DType::kUInt8,
                                  "one of its inputs is {}", t->dtype);
        else
            TensorReader::require_float(*t, "A or B");
    TensorReader::require(integers || a.dtype == b.dtype, "it multiplies {} by {}", a.dtype,
                          b.dtype);
    TensorReader::require(a.rank() >= 1 && b.rank() >= 1, "one of its inputs is a number");
    const bool row = a.rank() == 1, column = b.rank() == 1;
    if (row) a.shape.insert(a.shape.begin(), 1);
    if (column) b.shape.push_back(1);
    const int64_t m = a.shape[a.rank() - 2], k = a.shape.back(), n = b.shape.back();
    TensorReader::require(b.shape[b.rank() - 2] == k, "it multiplies {} by {}", shape_text(a.shape),
                          shape_text(b.shape));
    const std::vector<int64_t> a_batch(a.shape.begin(), a.shape.end() - 2);
    const std::vector<int64_t> b_batch(b.shape.begin(), b.shape.end() - 2);
    std::vector<int64_t> batch;
    TensorReader::require(broadcast(a_batch, b_batch, batch), "its batches do not go together");
    constexpr size_t kMost = 4;
    TensorReader::require(batch.size() <= kMost, "its batch has {} dimensions; {} are computed",
                          batch.size(), kMost);
    for (size_t i = 2; i < 4; ++i) {
        if (!integers || !r.has(i)) continue;
        const TensorType& zero = r.operand(i, i == 2 ? "a_zero_point" : "b_zero_point");
        TensorReader::require(zero.count() == 1 && zero.dtype == (i == 2 ? a : b).dtype,
                              "its zero points are not one for each input");
    }
    r.numbers("batch", batch);
    r.numbers("a_strides", broadcast_strides(a_batch, batch));
    r.numbers("b_strides", broadcast_strides(b_batch, batch));
    r.number("m", m);
    r.number("k", k);
    r.number("n", n);
    std::vector<int64_t> shape = batch;
    if (!row) shape.push_back(m);
    if (!column) shape.push_back(n);
    r.flops(2.0 * static_cast<double>(product(batch) * m) * static_cast<double>(k) *
            static_cast<double>(n));
    r.result(0, "Y", {integers ? DType::kInt32 : a.dtype, shape});
}

}  // namespace cleave::importer::from_onnx
