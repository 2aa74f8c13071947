// SPDX-License-Identifier: Apache-2.0
// Kernels of tensor operators. In: a step of one kTensor operator, and of elementwise ones behind
// it. Out: what specialises its template, and its arguments. Head sizes and types are constants of
// a kernel; every other size is an argument, so that equal operators on other shapes share their
// kernel. Of a chain it is a constant, too, whether the rows of an operand stand in memory as they
// are walked over (stride 1), or repeat one element (stride 0).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/lower/step_reader.h"

namespace cleave::codegen {

struct TensorKernel {
    TensorSpec spec;
    std::vector<Arg> args;
};

// UserError naming the operator when there is no kernel for it, or for this form of it.
TensorKernel lower_tensor(const StepReader& step);

// What the lowering of one operator reads and writes.
class TensorLowering {
public:
    TensorLowering(const StepReader& step, std::string file, std::string call,
                   std::string args_struct);

    const importer::Op& op() const { return step_.op(0); }
    int64_t number(std::string_view name) const;
    const std::vector<int64_t>& numbers(std::string_view name) const;
    double real(std::string_view name) const;
    const importer::TensorOperand* find(std::string_view name) const;  // among the operands
    const importer::TensorOperand* find_result(std::string_view name) const;

    // Constants of Config.
    void constant(std::string_view name, int64_t value);
    void flag(std::string_view name, bool value);
    void line(std::string text) { kernel_.spec.config.push_back(std::move(text)); }
    const importer::TensorAttrs& attrs() const { return attrs_; }
    // Numbers as elements of an array argument, the rest of `size` filled up.
    void arguments(std::string_view name, const std::vector<int64_t>& values, size_t size,
                   int64_t filler);
    void constant_real(std::string_view name, double value);
    void type(std::string_view name, DType dtype);
    void note(std::string text) { kernel_.spec.notes.push_back(std::move(text)); }
    void items(int64_t n) { kernel_.spec.items = n; }

    // The next argument: an operand's or result's address, or null where it is absent; or a number.
    void operand(std::string_view name, DType when_absent = DType::kF32) {
        operand(name, name, when_absent);
    }
    void operand(std::string_view name, std::string_view parameter,
                 DType when_absent = DType::kF32);
    void raw_operand(std::string_view name, std::string_view parameter);  // as bytes
    void raw_result(std::string_view name, std::string_view parameter);
    void result(std::string_view name, DType when_absent = DType::kF32);
    // The result that the kernel makes in order, and what the elementwise operators behind it make
    // of it. `bytes`: the kernel only moves elements, as bytes where nothing follows.
    void result_in_order(std::string_view name, bool bytes = false);
    // What the launch stores: the last operator's result.
    void final_result(DType dtype);
    // Operators [first, ...) of the step, elementwise. The first one reads what the launch holds,
    // or, where first is 0, memory.
    void chain(size_t first);
    void argument(std::string_view name, int64_t value);
    void argument(std::string_view name) { argument(name, number(name)); }

    TensorKernel finish() { return std::move(kernel_); }

private:
    void pointer(std::string_view type, std::string_view name, Arg arg);
    Arg operand_arg(const importer::Op& op, const importer::TensorOperand& operand) const;
    Arg result_arg(const importer::TensorOperand& result) const;

    const StepReader& step_;
    const importer::TensorAttrs& attrs_;
    TensorKernel kernel_;
};

// As the templates call it: "float", "f16", "i64", "int4".
std::string_view tensor_element(DType dtype);

// One each.
TensorKernel lower_tensor_attention(const StepReader& step);
TensorKernel lower_tensor_rms_norm(const StepReader& step);
TensorKernel lower_tensor_rope(const StepReader& step);
TensorKernel lower_tensor_dequantize(const StepReader& step);
TensorKernel lower_tensor_quantize(const StepReader& step);
TensorKernel lower_tensor_dynamic_quantize(const StepReader& step);
TensorKernel lower_tensor_map(const StepReader& step);
TensorKernel lower_tensor_concat(const StepReader& step);
TensorKernel lower_tensor_split(const StepReader& step);
TensorKernel lower_tensor_gather(const StepReader& step);
TensorKernel lower_tensor_gather_nd(const StepReader& step);
TensorKernel lower_tensor_pad(const StepReader& step);
TensorKernel lower_tensor_scatter(const StepReader& step);
TensorKernel lower_tensor_reduce(const StepReader& step);
TensorKernel lower_tensor_softmax(const StepReader& step);
TensorKernel lower_tensor_matmul(const StepReader& step);

}  // namespace cleave::codegen
