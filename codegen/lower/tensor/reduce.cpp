// SPDX-License-Identifier: Apache-2.0
// Reductions, Softmax and matrix products.
#include "codegen/lower/tensor/tensor_kernels.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

constexpr size_t kReduceDims = 6;  // of tensor_reduce.h
constexpr size_t kBatchDims = 4;   // of tensor_matmul.h

int64_t product(const std::vector<int64_t>& dims) {
    int64_t n = 1;
    for (int64_t d : dims) n *= d;
    return n;
}

}  // namespace

TensorKernel lower_tensor_reduce(const StepReader& step) {
    TensorLowering l(step, "host/tensor_reduce.h", "tensor_reduce", "TensorReduceArgs");
    l.items(product(l.numbers("dims")));
    l.note("sums in f64; sizes and strides are arguments");
    l.type("X", l.find("x")->dtype);
    l.line(fmt::format("static constexpr Reduction kReduction = Reduction::k{};",
                       l.attrs().op_type.substr(6)));
    l.operand("x");
    l.result_in_order("y");
    l.arguments("dims", l.numbers("dims"), kReduceDims, 1);
    l.arguments("strides", l.numbers("strides"), kReduceDims, 0);
    l.arguments("inner_dims", l.numbers("inner_dims"), kReduceDims, 1);
    l.arguments("inner_strides", l.numbers("inner_strides"), kReduceDims, 0);
    return l.finish();
}

TensorKernel lower_tensor_softmax(const StepReader& step) {
    TensorLowering l(step, "host/tensor_reduce.h", "tensor_softmax", "TensorSoftmaxArgs");
    l.items(l.number("outer") * l.number("inner"));
    l.note("sums in f32; sizes are arguments");
    l.type("X", l.find("x")->dtype);
    l.operand("x");
    l.result_in_order("y");
    l.argument("axis");
    l.argument("inner");
    return l.finish();
}

TensorKernel lower_tensor_matmul(const StepReader& step) {
    TensorLowering l(step, "host/tensor_matmul.h", "tensor_matmul", "TensorMatmulArgs");
    const DType a = l.find("A")->dtype, b = l.find("B")->dtype;
    const bool reals = is_floating(a);
    l.items(product(l.numbers("batch")) * l.number("m"));
    l.note(fmt::format("dtype: {} by {}, sums {}; sizes are arguments", a, b,
                       reals ? "f32" : "int32"));
    l.type("A", a);
    l.type("B", b);
    l.type("Sum", reals ? DType::kF32 : DType::kInt32);
    l.operand("A");
    l.operand("B");
    l.operand("a_zero_point", a);
    l.operand("b_zero_point", b);
    l.result_in_order("Y");
    l.arguments("batch", l.numbers("batch"), kBatchDims, 1);
    l.arguments("a_strides", l.numbers("a_strides"), kBatchDims, 0);
    l.arguments("b_strides", l.numbers("b_strides"), kBatchDims, 0);
    l.argument("m");
    l.argument("k");
    l.argument("n");
    return l.finish();
}

}  // namespace cleave::codegen
