// SPDX-License-Identifier: Apache-2.0
// Elementwise operators, and those that move single elements.
#include <algorithm>

#include "codegen/tensor/tensor_kernels.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

constexpr size_t kMapDims = 6;  // of tensor_map.h

// Operators that only move elements, or change their type.
bool is_move(std::string_view op) {
    constexpr std::string_view kMoves[] = {"Cast",    "CastLike",  "Identity", "Reshape",
                                           "Squeeze", "Unsqueeze", "Flatten",  "Transpose",
                                           "Expand",  "Slice"};
    return std::find(std::begin(kMoves), std::end(kMoves), op) != std::end(kMoves);
}

}  // namespace

TensorKernel lower_tensor_map(const StepReader& step) {
    TensorLowering l(step, "host/tensor_map.h", "tensor_map", "TensorMapArgs");
    const std::string& op = l.attrs().op_type;
    const auto count = static_cast<size_t>(l.number("operands"));
    const std::vector<int64_t>& dims = l.numbers("dims");
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
    l.items(rows);
    const DType y = l.find_result("y")->dtype;
    const DType last = l.find(fmt::format("x{}", count - 1))->dtype;
    l.note(fmt::format("dtype: {} to {}; sizes and strides are arguments", last, y));
    l.constant("kOperands", static_cast<int64_t>(count));
    const bool truth = y == DType::kBool && last != DType::kBool;
    l.line(fmt::format("static constexpr Function kFunction = Function::k{};", !is_move(op) ? op
                                                                               : truth
                                                                                   ? "Truth"
                                                                                   : "Identity"));
    // Reals are computed as f32, all integers as 64-bit ones.
    l.flag("kReal", is_floating(last));
    l.constant_real("kAlpha", op == "Swish" ? l.real("alpha") : 0.0);
    for (size_t i = 0; i < 3; ++i) {
        const importer::TensorOperand* x = l.find(fmt::format("x{}", i));
        l.type(fmt::format("X{}", i), x ? x->dtype : last);
    }
    l.type("Y", y);
    for (size_t i = 0; i < 3; ++i) l.operand(fmt::format("x{}", i), last);
    l.result("y");
    // The last dimension of the kernel is the innermost; in front of what there is, ones.
    const auto padded = [&](const std::vector<int64_t>& values, int64_t filler) {
        std::vector<int64_t> all(kMapDims - values.size(), filler);
        all.insert(all.end(), values.begin(), values.end());
        return all;
    };
    l.arguments("dims", padded(dims, 1), kMapDims, 1);
    for (size_t i = 0; i < 3; ++i) {
        const bool there = i < count;
        const std::vector<int64_t> none;
        l.arguments(fmt::format("strides{}", i),
                    padded(there ? l.numbers(fmt::format("strides{}", i)) : none, 0), kMapDims, 0);
        l.argument(fmt::format("offset{}", i), there ? l.number(fmt::format("offset{}", i)) : 0);
    }
    return l.finish();
}

}  // namespace cleave::codegen
