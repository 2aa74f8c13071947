// SPDX-License-Identifier: Apache-2.0
// Operators that move runs of bytes: Concat, Split, Gather and TensorScatter.
#include "codegen/tensor/tensor_kernels.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

constexpr size_t kParts = 8;  // of tensor_move.h

TensorKernel join_or_split(const StepReader& step, bool joins) {
    TensorLowering l(step, "host/tensor_move.h", joins ? "tensor_concat" : "tensor_split",
                     joins ? "TensorConcatArgs" : "TensorSplitArgs");
    l.items(l.number("outer"));
    l.note("runs of bytes; their lengths are arguments");
    l.constant("kParts", static_cast<int64_t>(kParts));
    for (size_t i = 0; i < kParts; ++i) {
        const std::string name = fmt::format("{}{}", joins ? "x" : "y", i);
        joins ? l.raw_operand(name, fmt::format("x[{}]", i))
              : l.raw_result(name, fmt::format("y[{}]", i));
    }
    joins ? l.raw_result("y", "y") : l.raw_operand("x", "x");
    l.arguments("bytes", l.numbers("run_bytes"), kParts, 0);
    return l.finish();
}

}  // namespace

TensorKernel lower_tensor_concat(const StepReader& step) { return join_or_split(step, true); }
TensorKernel lower_tensor_split(const StepReader& step) { return join_or_split(step, false); }

TensorKernel lower_tensor_gather(const StepReader& step) {
    TensorLowering l(step, "host/tensor_move.h", "tensor_gather", "TensorGatherArgs");
    const int64_t rows = l.number("rows");
    l.items(l.number("outer") * rows);
    l.note("runs of bytes; their lengths are arguments");
    l.flag("kEach", l.number("each") != 0);
    l.raw_operand("data", "data");
    l.operand("indices", DType::kInt64);
    l.raw_result("y", "y");
    l.argument("rows");
    l.argument("axis");
    l.argument("inner");
    l.argument("element_bytes");
    return l.finish();
}

TensorKernel lower_tensor_scatter(const StepReader& step) {
    TensorLowering l(step, "host/tensor_move.h", "tensor_scatter", "TensorScatterArgs");
    l.items(l.number("outer"));
    l.note("runs of bytes; their lengths are arguments");
    l.raw_operand("past_cache", "past");
    l.raw_operand("update", "update");
    l.operand("write_indices", DType::kInt64);
    l.raw_result("present_cache", "present");
    l.argument("per_batch");
    l.argument("axis");
    l.argument("added");
    l.argument("run_bytes");
    return l.finish();
}

}  // namespace cleave::codegen
