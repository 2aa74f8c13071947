// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower/tensor/tensor_kernels.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "runtime/base/errors.h"

namespace cleave::codegen {

using importer::TensorOperand;

namespace {

struct Row {
    std::string_view op;
    TensorKernel (*lower)(const StepReader&);
};
// Every other operator walks over its operands by strides.
constexpr std::array kLowerings{
    Row{"Attention", lower_tensor_attention},
    Row{"DequantizeLinear", lower_tensor_dequantize},
    Row{"DynamicQuantizeLinear", lower_tensor_dynamic_quantize},
    Row{"QuantizeLinear", lower_tensor_quantize},
    Row{"RMSNormalization", lower_tensor_rms_norm},
    Row{"RotaryEmbedding", lower_tensor_rope},
    Row{"Softmax", lower_tensor_softmax},
    Row{"MatMul", lower_tensor_matmul},
    Row{"MatMulInteger", lower_tensor_matmul},
    Row{"Gather", lower_tensor_gather},
    Row{"GatherElements", lower_tensor_gather},
    Row{"GatherND", lower_tensor_gather_nd},
    Row{"Pad", lower_tensor_pad},
    Row{"TensorScatter", lower_tensor_scatter},
    Row{"Concat", lower_tensor_concat},
    Row{"Split", lower_tensor_split},
    Row{"ReduceMean", lower_tensor_reduce},
    Row{"ReduceSum", lower_tensor_reduce},
    Row{"ReduceMax", lower_tensor_reduce},
    Row{"ReduceMin", lower_tensor_reduce},
};

const TensorOperand* find_in(const std::vector<TensorOperand>& all, std::string_view name) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.name == name; });
    return found == all.end() ? nullptr : &*found;
}

}  // namespace

TensorKernel lower_tensor(const StepReader& step) {
    const importer::Op& op = step.op(0);
    const std::string& type = op.as<importer::TensorAttrs>().op_type;
    for (const Row& row : kLowerings)
        if (row.op == type) return row.lower(step);
    return lower_tensor_map(step);
}

std::string_view tensor_element(DType dtype) {
    switch (dtype) {
        case DType::kF32: return "float";
        case DType::kF16: return "f16";
        case DType::kBF16: return "bf16";
        case DType::kF8E4M3: return "f8e4m3";
        case DType::kInt8: return "i8";
        case DType::kUInt8:
        case DType::kBool: return "u8";
        case DType::kInt4: return "int4";
        case DType::kUInt4: return "uint4";
        case DType::kInt16: return "i16";
        case DType::kInt32: return "i32";
        case DType::kInt64: return "i64";
        case DType::kMxfp4:
        case DType::kF8E8M0:
        case DType::kF64: break;
    }
    throw UserError("host kernels do not compute with tensors of {}", dtype);
}

TensorLowering::TensorLowering(const StepReader& step, std::string file, std::string call,
                               std::string args_struct)
    : step_(step), attrs_(step.op(0).as<importer::TensorAttrs>()) {
    kernel_.spec.file = std::move(file);
    kernel_.spec.call = std::move(call);
    kernel_.spec.args_struct = std::move(args_struct);
}

const std::vector<int64_t>& TensorLowering::numbers(std::string_view name) const {
    for (const importer::TensorAttribute& a : attrs_.attributes)
        if (a.name == name) return a.integers;
    throw InternalError(fmt::format("{} ({}) has no '{}'", op().name, attrs_.op_type, name));
}

int64_t TensorLowering::number(std::string_view name) const {
    const std::vector<int64_t>& all = numbers(name);
    CLEAVE_CHECK(all.size() == 1) << op().name << ": '" << name << "' is no number";
    return all[0];
}

double TensorLowering::real(std::string_view name) const {
    for (const importer::TensorAttribute& a : attrs_.attributes)
        if (a.name == name && a.reals.size() == 1) return a.reals[0];
    throw InternalError(fmt::format("{} ({}) has no real '{}'", op().name, attrs_.op_type, name));
}

const TensorOperand* TensorLowering::find(std::string_view name) const {
    return find_in(attrs_.operands, name);
}
const TensorOperand* TensorLowering::find_result(std::string_view name) const {
    return find_in(attrs_.results, name);
}

void TensorLowering::constant(std::string_view name, int64_t value) {
    kernel_.spec.config.push_back(fmt::format("static constexpr i64 {} = {};", name, value));
}
void TensorLowering::flag(std::string_view name, bool value) {
    kernel_.spec.config.push_back(fmt::format("static constexpr bool {} = {};", name, value));
}
void TensorLowering::constant_real(std::string_view name, double value) {
    kernel_.spec.config.push_back(
        fmt::format("static constexpr float {} = static_cast<float>({:.17g});", name, value));
}
void TensorLowering::type(std::string_view name, DType dtype) {
    kernel_.spec.config.push_back(fmt::format("using {} = {};", name, tensor_element(dtype)));
}

void TensorLowering::pointer(std::string_view type, std::string_view name, Arg arg) {
    arg.name = name;
    kernel_.spec.args.emplace_back(type, name);
    kernel_.args.push_back(std::move(arg));
}

Arg TensorLowering::operand_arg(const importer::Op& op, const TensorOperand& o) const {
    const auto index = static_cast<size_t>(o.index < 0 ? -1 - o.index : o.index);
    return o.index < 0 ? step_.weight_arg(op, index, o.name)
                       : step_.input_arg(op.inputs.at(index), o.name);
}

Arg TensorLowering::result_arg(const TensorOperand& o) const {
    return step_.output_arg(op().outputs.at(static_cast<size_t>(o.index)), o.name);
}

void TensorLowering::operand(std::string_view name, std::string_view parameter, DType when_absent) {
    const TensorOperand* o = find(name);
    pointer(fmt::format("const {}*", tensor_element(o ? o->dtype : when_absent)), parameter,
            o ? operand_arg(op(), *o) : Arg{});
}

void TensorLowering::result(std::string_view name, DType when_absent) {
    const TensorOperand* o = find_result(name);
    pointer(fmt::format("{}*", tensor_element(o ? o->dtype : when_absent)), name,
            o ? result_arg(*o) : Arg{});
}

void TensorLowering::raw_operand(std::string_view name, std::string_view parameter) {
    const TensorOperand* o = find(name);
    pointer("const u8*", parameter, o ? operand_arg(op(), *o) : Arg{});
}

void TensorLowering::raw_result(std::string_view name, std::string_view parameter) {
    const TensorOperand* o = find_result(name);
    pointer("u8*", parameter, o ? result_arg(*o) : Arg{});
}

void TensorLowering::arguments(std::string_view name, const std::vector<int64_t>& values,
                               size_t size, int64_t filler) {
    CLEAVE_CHECK(values.size() <= size)
        << op().name << ": " << values.size() << " numbers of " << name;
    for (size_t i = 0; i < size; ++i)
        argument(fmt::format("{}[{}]", name, i), i < values.size() ? values[i] : filler);
}

void TensorLowering::argument(std::string_view name, int64_t value) {
    pointer("i64", name, immediate_arg(value, {}));
}

}  // namespace cleave::codegen
