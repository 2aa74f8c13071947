// SPDX-License-Identifier: Apache-2.0
// One call a node: builds the ONNX model of a segment. Constants of a few elements are inline;
// weights are named in an external file. Names of nodes and values are unique and stable.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <onnx/onnx_pb.h>

#include "importer/onnx/value_info.h"
#include "planner/export/model/tensor_file.h"

namespace cleave::planner {

using OnnxAttribute = std::pair<std::string, std::variant<int64_t, std::vector<int64_t>>>;
using importer::OnnxDims;

class OnnxGraph {
public:
    // `data_file`: where external tensors lie, relative to the model.
    OnnxGraph(std::string name, std::string data_file);

    // A node; its output is `output`, or a fresh name when empty. Returns it.
    std::string node(const std::string& op_type, const std::vector<std::string>& inputs,
                     const std::vector<OnnxAttribute>& attributes = {}, std::string output = {});
    std::string ints(const std::vector<int64_t>& values);  // 1-D int64
    std::string integer(int64_t value);                    // 0-D
    std::string scalar(float value);                       // 0-D f32
    // As f32: a Cast follows what is stored in another type.
    std::string external(const StoredTensor& tensor);

    void input(const std::string& name, int type, const OnnxDims& dims);
    void output(const std::string& name, int type, const OnnxDims& dims);
    // Names of the nodes from here on begin with it: the operator's.
    void scope(std::string prefix) { scope_ = std::move(prefix); }

    const onnx::ModelProto& model() const { return model_; }

private:
    std::string fresh(const std::string& what);
    onnx::TensorProto& constant(const std::string& key, int type);

    onnx::ModelProto model_;
    onnx::GraphProto& graph_;
    std::string data_file_, scope_;
    std::map<std::string, std::string> constants_, externals_;
    std::map<std::string, int> counters_;
};

int onnx_type_of(DType dtype);

}  // namespace cleave::planner
