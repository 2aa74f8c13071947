// SPDX-License-Identifier: Apache-2.0
// Small ONNX files for tests: inputs and nodes one by one, imported from a temporary folder; and
// numbers to feed them.
#pragma once

#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "importer/graph/graph.h"
#include "runtime/execute/tensor.h"

namespace cleave::test {

using Shape = std::vector<int64_t>;

class ModelWriter {
public:
    ModelWriter() {
        model_.set_ir_version(10);
        model_.add_opset_import()->set_version(25);
    }
    void input(const std::string& name, const Shape& shape, int type = onnx::TensorProto::FLOAT) {
        describe(model_.mutable_graph()->add_input(), name, shape, type);
    }
    void output(const std::string& name) {
        describe(model_.mutable_graph()->add_output(), name, {}, onnx::TensorProto::FLOAT);
    }
    onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs) {
        onnx::NodeProto& node = *model_.mutable_graph()->add_node();
        node.set_op_type(op);
        node.set_name(op + "_" + outputs[0]);
        for (const std::string& in : inputs) node.add_input(in);
        for (const std::string& out : outputs) node.add_output(out);
        return node;
    }
    void constant(const std::string& name, const Shape& shape, const std::vector<float>& values) {
        onnx::TensorProto& tensor = *model_.mutable_graph()->add_initializer();
        tensor.set_name(name);
        tensor.set_data_type(onnx::TensorProto::FLOAT);
        for (int64_t d : shape) tensor.add_dims(d);
        for (float v : values) tensor.add_float_data(v);
    }
    void integers(const std::string& name, const std::vector<int64_t>& values) {
        onnx::TensorProto& tensor = *model_.mutable_graph()->add_initializer();
        tensor.set_name(name);
        tensor.set_data_type(onnx::TensorProto::INT64);
        tensor.add_dims(static_cast<int64_t>(values.size()));
        for (int64_t v : values) tensor.add_int64_data(v);
    }
    // Imported; what it keeps of the file is in memory.
    importer::Graph graph() const;
    void number(onnx::NodeProto& node, const char* name, int64_t value) {
        onnx::AttributeProto& a = *node.add_attribute();
        a.set_name(name);
        a.set_type(onnx::AttributeProto::INT);
        a.set_i(value);
    }
    void real(onnx::NodeProto& node, const char* name, float value) {
        onnx::AttributeProto& a = *node.add_attribute();
        a.set_name(name);
        a.set_type(onnx::AttributeProto::FLOAT);
        a.set_f(value);
    }

private:
    static void describe(onnx::ValueInfoProto* value, const std::string& name, const Shape& shape,
                         int type) {
        value->set_name(name);
        auto* tensor = value->mutable_type()->mutable_tensor_type();
        tensor->set_elem_type(type);
        for (int64_t d : shape) {
            auto* dim = tensor->mutable_shape()->add_dim();
            d < 0 ? dim->set_dim_param("N") : dim->set_dim_value(d);
        }
    }
    onnx::ModelProto model_;
};

// sin(0.7 i) as elements of that type: f32, f16 or bf16.
runtime::Tensor floats(const std::string& name, const Shape& shape, DType dtype = DType::kF32,
                       double phase = 0.0);
runtime::Tensor integers(const std::string& name, const Shape& shape,
                         const std::vector<int64_t>& values);

}  // namespace cleave::test
