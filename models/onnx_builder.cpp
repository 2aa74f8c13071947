// SPDX-License-Identifier: Apache-2.0
#include "models/onnx_builder.h"

#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::models {
namespace {

int onnx_type(DType dtype) {
    switch (dtype) {
        case DType::kF32: return onnx::TensorProto::FLOAT;
        case DType::kF16: return onnx::TensorProto::FLOAT16;
        case DType::kBF16: return onnx::TensorProto::BFLOAT16;
        default: break;
    }
    throw UserError("an ONNX model cannot be written in {}; supported are f32, f16 and bf16",
                    dtype);
}

// "com.microsoft.GroupQueryAttention" -> {"com.microsoft", "GroupQueryAttention"}.
std::pair<std::string, std::string> split_domain(const std::string& op_type) {
    size_t dot = op_type.rfind('.');
    if (dot == std::string::npos) return {"", op_type};
    return {op_type.substr(0, dot), op_type.substr(dot + 1)};
}

}  // namespace

void set_attribute(onnx::NodeProto& node, const Attribute& attribute) {
    onnx::AttributeProto* a = node.add_attribute();
    a->set_name(attribute.first);
    if (const auto* i = std::get_if<int64_t>(&attribute.second)) {
        a->set_type(onnx::AttributeProto::INT);
        a->set_i(*i);
    } else if (const auto* f = std::get_if<double>(&attribute.second)) {
        a->set_type(onnx::AttributeProto::FLOAT);
        a->set_f(static_cast<float>(*f));
    } else if (const auto* s = std::get_if<std::string>(&attribute.second)) {
        a->set_type(onnx::AttributeProto::STRING);
        a->set_s(*s);
    } else {
        a->set_type(onnx::AttributeProto::INTS);
        for (int64_t number : std::get<std::vector<int64_t>>(attribute.second)) a->add_ints(number);
    }
}

OnnxBuilder::OnnxBuilder(onnx::ModelProto& model, DType dtype)
    : model_(model), graph_(*model.mutable_graph()), dtype_(dtype), onnx_dtype_(onnx_type(dtype)) {}

std::string OnnxBuilder::fresh(const std::string& op_type) {
    return fmt::format("{}{}_{}", scope_, op_type, counter_++);
}

std::string OnnxBuilder::node(const std::string& op_type, const std::vector<std::string>& inputs,
                              const std::vector<Attribute>& attributes) {
    std::string output =
        fmt::format("{}{}_{}_output_0", scope_, split_domain(op_type).second, counter_);
    node_to(op_type, inputs, {output}, attributes);
    return output;
}

void OnnxBuilder::node_to(const std::string& op_type, const std::vector<std::string>& inputs,
                          const std::vector<std::string>& outputs,
                          const std::vector<Attribute>& attributes) {
    auto [domain, type] = split_domain(op_type);
    onnx::NodeProto* node = graph_.add_node();
    node->set_op_type(type);
    if (!domain.empty()) node->set_domain(domain);
    node->set_name(fresh(type));
    for (const std::string& i : inputs) node->add_input(i);
    for (const std::string& o : outputs) node->add_output(o);
    for (const Attribute& a : attributes) set_attribute(*node, a);
}

std::string OnnxBuilder::ints(const std::vector<int64_t>& values) {
    onnx::TensorProto* t = graph_.add_initializer();
    t->set_name(fresh("ints"));
    t->set_data_type(onnx::TensorProto::INT64);
    t->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t v : values) t->add_int64_data(v);
    return t->name();
}

std::string OnnxBuilder::int_scalar(int64_t value) {
    onnx::TensorProto* t = graph_.add_initializer();
    t->set_name(fresh("int"));
    t->set_data_type(onnx::TensorProto::INT64);
    t->add_int64_data(value);
    return t->name();
}

std::string OnnxBuilder::scalar(double value) {
    return floats({static_cast<float>(value)}, {}, false);
}

std::string OnnxBuilder::floats(const std::vector<float>& values, const std::vector<int64_t>& shape,
                                bool as_f32) {
    onnx::TensorProto* t = graph_.add_initializer();
    t->set_name(fresh("const"));
    DType dtype = as_f32 ? DType::kF32 : dtype_;
    t->set_data_type(onnx_type(dtype));
    for (int64_t d : shape) t->add_dims(d);
    std::string raw(static_cast<size_t>(dtype_bytes(dtype, static_cast<int64_t>(values.size()))),
                    '\0');
    convert_elements(DType::kF32, values.data(), dtype, raw.data(),
                     static_cast<int64_t>(values.size()));
    t->set_raw_data(std::move(raw));
    return t->name();
}

std::string OnnxBuilder::weight(const std::string& name, std::vector<int64_t> shape,
                                int64_t fan_in) {
    if (tensor_names_.insert(name).second) tensors_.push_back({name, std::move(shape), fan_in, {}});
    return name;
}

std::string OnnxBuilder::packed_weight(const std::string& name, std::vector<int64_t> shape,
                                       std::vector<int64_t> stored_as_int32) {
    tensors_.push_back({name, std::move(shape), 1, std::move(stored_as_int32)});
    return name;
}

void OnnxBuilder::input(const std::string& name, int type, const importer::OnnxDims& dims) {
    onnx::ValueInfoProto* info = graph_.add_input();
    info->set_name(name);
    importer::set_tensor_type(*info, type, dims);
}

void OnnxBuilder::output(const std::string& name, int type, const importer::OnnxDims& dims) {
    onnx::ValueInfoProto* info = graph_.add_output();
    info->set_name(name);
    importer::set_tensor_type(*info, type, dims);
}

void OnnxBuilder::opset(const std::string& domain, int64_t version) {
    auto* import = model_.add_opset_import();
    import->set_domain(domain);
    import->set_version(version);
}

}  // namespace cleave::models
