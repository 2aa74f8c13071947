// SPDX-License-Identifier: Apache-2.0
// Makes ONNX nodes and initializers one call each; what models/onnx_forms.cpp writes its graphs
// with. Names are unique and stable. Initializers of `Tensor` are recorded, not filled: the writer
// lays them out and fills them.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <onnx/onnx_pb.h>

#include "importer/onnx/value_info.h"
#include "models/shapes.h"

namespace cleave::models {

// A weight to be written: [in, out] for a MatMul's right side, [n] for a vector.
struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    int64_t fan_in = 1;  // 0: a norm's weight, ones
    // Bytes that a Hugging Face folder has as int32 numbers of this shape; empty: as they are.
    std::vector<int64_t> stored_as_int32;
};

using Attribute =
    std::pair<std::string, std::variant<int64_t, double, std::string, std::vector<int64_t>>>;

class OnnxBuilder {
public:
    OnnxBuilder(onnx::ModelProto& model, DType dtype);

    // A node of `op_type` ("com.microsoft.GroupQueryAttention" with its domain); returns its first
    // output's name.
    std::string node(const std::string& op_type, const std::vector<std::string>& inputs,
                     const std::vector<Attribute>& attributes = {});
    // The same with the outputs' names given ("" for an omitted one).
    void node_to(const std::string& op_type, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs,
                 const std::vector<Attribute>& attributes = {});

    std::string ints(const std::vector<int64_t>& values);  // 1-D int64 constant
    std::string int_scalar(int64_t value);
    std::string scalar(double value);  // of the model's dtype
    std::string floats(const std::vector<float>& values, const std::vector<int64_t>& shape,
                       bool as_f32 = true);
    std::string weight(const std::string& name, std::vector<int64_t> shape, int64_t fan_in);
    // uint8, of a Hugging Face folder alone.
    std::string packed_weight(const std::string& name, std::vector<int64_t> shape,
                              std::vector<int64_t> stored_as_int32);
    std::string cast(const std::string& x, int onnx_type) {
        return node("Cast", {x}, {{"to", int64_t{onnx_type}}});
    }

    void input(const std::string& name, int onnx_type, const importer::OnnxDims& dims);
    void output(const std::string& name, int onnx_type, const importer::OnnxDims& dims);
    void opset(const std::string& domain, int64_t version);

    // Prefix of the names of nodes made from here on ("/model/layers.0/").
    void scope(std::string prefix) { scope_ = std::move(prefix); }

    int dtype() const { return onnx_dtype_; }  // TensorProto::FLOAT, FLOAT16 or BFLOAT16
    bool is_f32() const { return dtype_ == DType::kF32; }
    const std::vector<Tensor>& tensors() const { return tensors_; }

private:
    std::string fresh(const std::string& op_type);

    onnx::ModelProto& model_;
    onnx::GraphProto& graph_;
    DType dtype_;
    int onnx_dtype_;
    std::string scope_ = "/";
    std::vector<Tensor> tensors_;
    std::set<std::string> tensor_names_;
    int64_t counter_ = 0;
};

// Appends one attribute.
void set_attribute(onnx::NodeProto& node, const Attribute& attribute);

}  // namespace cleave::models
