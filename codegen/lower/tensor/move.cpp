// SPDX-License-Identifier: Apache-2.0
// Operators that move runs of bytes: Concat, Split, Gather and TensorScatter.
#include "codegen/lower/tensor/tensor_kernels.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

constexpr size_t kParts = 8;  // of tensor_move.h
constexpr size_t kMoveDims = 6;

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
    joins ? l.result_in_order("y", true) : l.raw_operand("x", "x");
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
    l.result_in_order("y", true);
    l.argument("rows");
    l.argument("axis");
    l.argument("inner");
    l.argument("element_bytes");
    return l.finish();
}

TensorKernel lower_tensor_gather_nd(const StepReader& step) {
    TensorLowering l(step, "host/tensor_move.h", "tensor_gather_nd", "TensorGatherNdArgs");
    l.items(l.number("tuples"));
    l.note("runs of bytes; their lengths are arguments");
    l.raw_operand("data", "data");
    l.operand("indices", DType::kInt64);
    l.result_in_order("y", true);
    l.arguments("dims", l.numbers("dims"), kMoveDims, 0);
    l.arguments("strides", l.numbers("strides"), kMoveDims, 0);
    l.argument("length", static_cast<int64_t>(l.numbers("dims").size()));
    l.argument("tuples_per_batch");
    l.argument("batch_stride");
    l.argument("slice");
    l.argument("element_bytes");
    return l.finish();
}

TensorKernel lower_tensor_pad(const StepReader& step) {
    TensorLowering l(step, "host/tensor_move.h", "tensor_pad", "TensorPadArgs");
    int64_t elements = 1;
    for (int64_t d : l.numbers("dims")) elements *= d;
    const int64_t width = l.numbers("dims").empty() ? 1 : l.numbers("dims").back();
    l.items(elements / width);
    l.note("elements of some bytes; sizes are arguments");
    l.raw_operand("data", "data");
    l.raw_operand("constant_value", "value");
    l.result_in_order("y", true);
    // The last dimension of the kernel is the innermost; in front of what there is, ones.
    const auto padded = [&](const std::string& name, int64_t filler) {
        std::vector<int64_t> all(kMoveDims - l.numbers(name).size(), filler);
        all.insert(all.end(), l.numbers(name).begin(), l.numbers(name).end());
        return all;
    };
    l.arguments("dims", padded("dims", 1), kMoveDims, 1);
    l.arguments("before", padded("before", 0), kMoveDims, 0);
    l.arguments("x_dims", padded("x_dims", 1), kMoveDims, 1);
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
