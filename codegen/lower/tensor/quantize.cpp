// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower/tensor/tensor_kernels.h"

namespace cleave::codegen {

namespace {

// Between real numbers and small integers: which element has which scale.
TensorKernel lower(const StepReader& step, const char* call, const char* scale, const char* zero) {
    TensorLowering l(step, "host/tensor_quantize.h", call, "QuantizeArgs");
    const DType x = l.find("x")->dtype, y = l.find_result("y")->dtype;
    const bool quantizes = step.op(0).as<importer::TensorAttrs>().op_type == "QuantizeLinear";
    l.items(l.number("outer") * l.number("axis"));
    l.note(
        fmt::format("dtype: {} to {}, scales {}; sizes are arguments", x, y, l.find(scale)->dtype));
    l.type("X", x);
    l.type("Scale", l.find(scale)->dtype);
    l.type("Zero", quantizes ? y : x);
    l.flag("kZeroPoint", l.find(zero) != nullptr);
    l.flag("kBlocked", l.number("block") > 0);
    l.operand("x");
    l.operand(scale, "scale");
    l.operand(zero, "zero_point", quantizes ? y : x);
    l.result_in_order("y");
    l.argument("axis");
    l.argument("inner");
    l.argument("block");
    return l.finish();
}

}  // namespace

TensorKernel lower_tensor_dequantize(const StepReader& step) {
    return lower(step, "tensor_dequantize", "x_scale", "x_zero_point");
}

TensorKernel lower_tensor_quantize(const StepReader& step) {
    return lower(step, "tensor_quantize", "y_scale", "y_zero_point");
}

TensorKernel lower_tensor_dynamic_quantize(const StepReader& step) {
    TensorLowering l(step, "host/tensor_quantize.h", "tensor_dynamic_quantize",
                     "DynamicQuantizeArgs");
    l.items(1);  // every element depends on all
    l.note("dtype: f32 to uint8; the size is an argument");
    l.operand("x");
    l.result("y", DType::kUInt8);
    l.result("y_scale");
    l.result("y_zero_point", DType::kUInt8);
    l.argument("elements");
    return l.finish();
}

}  // namespace cleave::codegen
