// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/tensor_io.h"

#include <algorithm>
#include <cstring>

#include <fmt/ranges.h>

#include "runtime/base/errors.h"

namespace cleave::runtime {

using namespace planner;
using importer::Op;
using importer::OpKind;
using importer::TensorOperand;
using importer::Value;
using importer::ValueKind;

namespace {

bool is_over_tensors(const Plan& plan) {
    const auto is_tensor = [&](ValueId v) {
        return plan.graph.value(v).kind == ValueKind::kTensor;
    };
    const auto& outputs = plan.graph.outputs;
    return !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), is_tensor);
}

void check_over_tensors(const Plan& plan) {
    if (!is_over_tensors(plan))
        throw UserError("{} is a language model: it runs on token ids, not on tensors",
                        plan.graph.name);
}

std::vector<int64_t> shape_of(const Value& value) {
    std::vector<int64_t> shape;
    for (const importer::Dim& d : value.shape) shape.push_back(d.value);
    return shape;
}

int64_t bytes_of(DType dtype, const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return dtype_bytes(dtype, n);
}

std::string describe(DType dtype, const std::vector<int64_t>& shape) {
    return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

std::string names_of(const Plan& plan, const std::vector<ValueId>& values) {
    std::string text;
    for (ValueId v : values) {
        const Value& value = plan.graph.value(v);
        text += fmt::format("{}'{}' ({})", text.empty() ? "" : ", ", value.name,
                            describe(value.dtype, shape_of(value)));
    }
    return text;
}

// Numbers of rows that an operator looks up must be rows of its table: attribute NAME_range of
// operand NAME.
void check_range(const Op& op, const TensorOperand& operand, const Tensor& tensor) {
    const std::string wanted = operand.name + "_range";
    for (const importer::TensorAttribute& a : op.as<importer::TensorAttrs>().attributes) {
        if (a.name != wanted) continue;
        // A pair for all numbers, or one for each place of a tuple.
        const size_t pairs = a.integers.size() / 2;
        for (size_t i = 0; i * sizeof(int64_t) < tensor.data.size(); ++i) {
            int64_t row;
            std::memcpy(&row, tensor.data.data() + i * sizeof(row), sizeof(row));
            const int64_t low = a.integers.at(i % pairs * 2),
                          high = a.integers.at(i % pairs * 2 + 1);
            if (row < low || row > high)
                throw UserError("input '{}' holds {} at place {}: operator {} ({}) takes {} to {}",
                                tensor.name, row, i, op.name, onnx_op_type(op), low, high);
        }
    }
}

void check_values(const Plan& plan, ValueId value, const Tensor& tensor) {
    for (const Op& op : plan.graph.ops) {
        if (op.kind != OpKind::kTensor) continue;
        for (const TensorOperand& o : op.as<importer::TensorAttrs>().operands)
            if (o.index >= 0 && op.inputs[static_cast<size_t>(o.index)] == value)
                check_range(op, o, tensor);
    }
}

}  // namespace

std::vector<std::span<const std::byte>> match_tensor_inputs(const Plan& plan,
                                                            std::span<const Tensor> given) {
    check_over_tensors(plan);
    const auto& inputs = plan.graph.inputs;
    std::vector<std::span<const std::byte>> matched(inputs.size());
    std::vector<bool> found(inputs.size(), false);
    for (const Tensor& tensor : given) {
        const auto at = std::find_if(inputs.begin(), inputs.end(), [&](ValueId v) {
            return plan.graph.value(v).name == tensor.name;
        });
        if (at == inputs.end())
            throw UserError("{} has no input '{}'; its inputs are {}", plan.graph.name, tensor.name,
                            names_of(plan, inputs));
        const auto i = static_cast<size_t>(at - inputs.begin());
        if (found[i]) throw UserError("input '{}' is given twice", tensor.name);
        found[i] = true;
        const Value& value = plan.graph.value(*at);
        const std::vector<int64_t> shape = shape_of(value);
        if (tensor.dtype != value.dtype || tensor.shape != shape)
            throw UserError("input '{}' is {}; {} was planned for {}", tensor.name,
                            describe(tensor.dtype, tensor.shape), plan.graph.name,
                            describe(value.dtype, shape));
        if (static_cast<int64_t>(tensor.data.size()) != bytes_of(value.dtype, shape))
            throw UserError("input '{}' ({}) has {} bytes, not {}", tensor.name,
                            describe(value.dtype, shape), tensor.data.size(),
                            bytes_of(value.dtype, shape));
        check_values(plan, *at, tensor);
        matched[i] = tensor.data;
    }
    for (size_t i = 0; i < inputs.size(); ++i)
        if (!found[i])
            throw UserError("input '{}' of {} is not given; its inputs are {}",
                            plan.graph.value(inputs[i]).name, plan.graph.name,
                            names_of(plan, inputs));
    return matched;
}

std::vector<Tensor> tensor_outputs(const Plan& plan) {
    check_over_tensors(plan);
    std::vector<Tensor> tensors;
    for (ValueId v : plan.graph.outputs) {
        const Value& value = plan.graph.value(v);
        Tensor tensor{value.name, value.dtype, shape_of(value), {}};
        tensor.data.resize(static_cast<size_t>(bytes_of(tensor.dtype, tensor.shape)));
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

void check_takes_batches(const Plan& plan) {
    if (!is_over_tensors(plan)) return;
    throw UserError("{} is no language model: it runs on tensors, its inputs {}", plan.graph.name,
                    names_of(plan, plan.graph.inputs));
}

}  // namespace cleave::runtime
