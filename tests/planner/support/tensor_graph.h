// SPDX-License-Identifier: Apache-2.0
// Graphs of operators over tensors, one by one, as the importer writes them.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "importer/graph/graph.h"

namespace cleave::test {

class TensorGraph {
public:
    using Shape = std::vector<int64_t>;

    importer::Graph graph;

    TensorGraph() { graph.name = "tensors"; }

    importer::ValueId input(const Shape& shape) {
        graph.inputs.push_back(value(shape));
        return graph.inputs.back();
    }
    // Of `shape`, its elements walked over by strides of the operands' shapes as ONNX broadcasts
    // them.
    importer::ValueId map(const std::string& op_type, const std::vector<importer::ValueId>& inputs,
                          const Shape& shape) {
        importer::TensorAttrs attrs;
        const auto number = [&](const std::string& name, std::vector<int64_t> values) {
            attrs.attributes.push_back({name, std::move(values), {}});
        };
        number("dims", shape);
        number("operands", {static_cast<int64_t>(inputs.size())});
        for (size_t i = 0; i < inputs.size(); ++i) {
            const Shape own = shape_of(inputs[i]);
            Shape strides(shape.size(), 0);
            int64_t behind = 1;
            for (size_t d = 0; d < own.size(); ++d) {
                const size_t from_end = own.size() - 1 - d;
                if (own[from_end] > 1) strides[shape.size() - 1 - d] = behind;
                behind *= own[from_end];
            }
            number("strides" + std::to_string(i), strides);
            number("offset" + std::to_string(i), {0});
            attrs.operands.push_back(
                {"x" + std::to_string(i), static_cast<int32_t>(i), DType::kF32, own});
        }
        return add(op_type, inputs, shape, std::move(attrs), "y");
    }
    importer::ValueId matmul(importer::ValueId a, importer::ValueId b) {
        const Shape x = shape_of(a), y = shape_of(b);
        importer::TensorAttrs attrs;
        attrs.operands = {{"A", 0, DType::kF32, x}, {"B", 1, DType::kF32, y}};
        attrs.flops = 2 * x[0] * x[1] * y[1];
        return add("MatMul", {a, b}, {x[0], y[1]}, std::move(attrs), "Y");
    }
    std::vector<int64_t>& numbers(size_t op, const std::string& name) {
        return numbers_of(graph.ops.at(op), name);
    }
    static std::vector<int64_t>& numbers_of(importer::Op& op, const std::string& name) {
        for (importer::TensorAttribute& a : std::get<importer::TensorAttrs>(op.attrs).attributes)
            if (a.name == name) return a.integers;
        throw std::out_of_range(name);
    }

private:
    importer::ValueId value(const Shape& shape) {
        graph.values.push_back({"t" + std::to_string(graph.values.size()),
                                importer::ValueKind::kTensor,
                                {shape.begin(), shape.end()},
                                DType::kF32});
        return importer::ValueId(graph.values.size() - 1);
    }
    Shape shape_of(importer::ValueId id) const {
        Shape shape;
        for (const importer::Dim& d : graph.value(id).shape) shape.push_back(d.value);
        return shape;
    }
    importer::ValueId add(const std::string& op_type, const std::vector<importer::ValueId>& inputs,
                          const Shape& shape, importer::TensorAttrs attrs,
                          const std::string& result) {
        attrs.op_type = op_type;
        attrs.results = {{result, 0, DType::kF32, shape}};
        if (attrs.flops == 0) {
            attrs.flops = 1;
            for (int64_t d : shape) attrs.flops *= d;
        }
        importer::Op op;
        op.kind = importer::OpKind::kTensor;
        op.name = op_type + std::to_string(graph.ops.size());
        op.attrs = std::move(attrs);
        op.inputs = inputs;
        op.outputs = {value(shape)};
        graph.ops.push_back(std::move(op));
        return graph.ops.back().outputs[0];
    }
};

// relu(a b + row) * scale: one launch.
inline TensorGraph tensor_layer() {
    TensorGraph g;
    const importer::ValueId a = g.input({24, 64}), b = g.input({64, 10}), row = g.input({10}),
                            scale = g.input({1});
    importer::ValueId x = g.matmul(a, b);
    x = g.map("Add", {x, row}, {24, 10});
    x = g.map("Relu", {x}, {24, 10});
    x = g.map("Mul", {x, scale}, {24, 10});
    g.graph.outputs = {x};
    return g;
}

}  // namespace cleave::test
