// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/ort/onnx_graph.h"

#include "runtime/base/errors.h"

namespace cleave::planner {

namespace {

// What every stock build of ONNX Runtime since 1.10 reads.
constexpr int64_t kIrVersion = 8;
constexpr int64_t kOpset = 17;

}  // namespace

int onnx_type_of(DType dtype) {
    switch (dtype) {
        case DType::kF32: return onnx::TensorProto::FLOAT;
        case DType::kF16: return onnx::TensorProto::FLOAT16;
        case DType::kBF16: return onnx::TensorProto::BFLOAT16;
        default: break;
    }
    CLEAVE_CHECK(false) << "an exported tensor of " << dtype_name(dtype);
    return 0;
}

OnnxGraph::OnnxGraph(std::string name, std::string data_file)
    : graph_(*model_.mutable_graph()), data_file_(std::move(data_file)) {
    model_.set_ir_version(kIrVersion);
    model_.set_producer_name("cleave");
    auto* opset = model_.add_opset_import();
    opset->set_domain("");
    opset->set_version(kOpset);
    graph_.set_name(std::move(name));
}

std::string OnnxGraph::fresh(const std::string& what) {
    std::string name = scope_ + "/" + what;
    const int count = counters_[name]++;
    return count == 0 ? name : fmt::format("{}_{}", name, count);
}

std::string OnnxGraph::node(const std::string& op_type, const std::vector<std::string>& inputs,
                            const std::vector<OnnxAttribute>& attributes, std::string output) {
    onnx::NodeProto* node = graph_.add_node();
    node->set_op_type(op_type);
    node->set_name(fresh(op_type));
    for (const std::string& input : inputs) node->add_input(input);
    if (output.empty()) output = node->name() + ":0";
    node->add_output(output);
    for (const auto& [name, value] : attributes) {
        onnx::AttributeProto* a = node->add_attribute();
        a->set_name(name);
        if (const auto* i = std::get_if<int64_t>(&value)) {
            a->set_type(onnx::AttributeProto::INT);
            a->set_i(*i);
        } else {
            a->set_type(onnx::AttributeProto::INTS);
            for (int64_t number : std::get<std::vector<int64_t>>(value)) a->add_ints(number);
        }
    }
    return output;
}

onnx::TensorProto& OnnxGraph::constant(const std::string& key, int type) {
    onnx::TensorProto* t = graph_.add_initializer();
    t->set_name(fmt::format("constant_{}", constants_.size()));
    t->set_data_type(type);
    constants_[key] = t->name();
    return *t;
}

std::string OnnxGraph::ints(const std::vector<int64_t>& values) {
    std::string key = "ints";
    for (int64_t v : values) key += fmt::format(" {}", v);
    if (auto at = constants_.find(key); at != constants_.end()) return at->second;
    onnx::TensorProto& t = constant(key, onnx::TensorProto::INT64);
    t.add_dims(static_cast<int64_t>(values.size()));
    for (int64_t v : values) t.add_int64_data(v);
    return t.name();
}

std::string OnnxGraph::integer(int64_t value) {
    const std::string key = fmt::format("integer {}", value);
    if (auto at = constants_.find(key); at != constants_.end()) return at->second;
    onnx::TensorProto& t = constant(key, onnx::TensorProto::INT64);
    t.add_int64_data(value);
    return t.name();
}

std::string OnnxGraph::scalar(float value) {
    const std::string key = fmt::format("scalar {:a}", value);
    if (auto at = constants_.find(key); at != constants_.end()) return at->second;
    onnx::TensorProto& t = constant(key, onnx::TensorProto::FLOAT);
    t.add_float_data(value);
    return t.name();
}

std::string OnnxGraph::external(const StoredTensor& tensor) {
    if (auto at = externals_.find(tensor.name); at != externals_.end()) return at->second;
    onnx::TensorProto* t = graph_.add_initializer();
    t->set_name(tensor.name);
    t->set_data_type(onnx_type_of(tensor.dtype));
    for (int64_t d : tensor.shape) t->add_dims(d);
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : {std::pair<const char*, std::string>{"location", data_file_},
                                     {"offset", std::to_string(tensor.offset)},
                                     {"length", std::to_string(tensor.length)}}) {
        auto* entry = t->add_external_data();
        entry->set_key(key);
        entry->set_value(value);
    }
    std::string name = tensor.name;
    if (tensor.dtype != DType::kF32)
        name =
            node("Cast", {name}, {{"to", int64_t{onnx::TensorProto::FLOAT}}}, tensor.name + ".f32");
    externals_[tensor.name] = name;
    return name;
}

void OnnxGraph::input(const std::string& name, int type, const OnnxDims& dims) {
    onnx::ValueInfoProto& info = *graph_.add_input();
    info.set_name(name);
    importer::set_tensor_type(info, type, dims);
}
void OnnxGraph::output(const std::string& name, int type, const OnnxDims& dims) {
    onnx::ValueInfoProto& info = *graph_.add_output();
    info.set_name(name);
    importer::set_tensor_type(info, type, dims);
}

}  // namespace cleave::planner
