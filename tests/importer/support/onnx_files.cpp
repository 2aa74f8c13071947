// SPDX-License-Identifier: Apache-2.0
#include "tests/importer/support/onnx_files.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include "importer/onnx/import.h"

namespace cleave::test {

models::Shape tiny_shape() {
    models::Shape shape = models::find_shape("stories-260k").value();
    shape.name = "tiny";
    shape.config.vocab_size = 64;
    shape.config.hidden_size = 32;
    shape.config.intermediate_size = 48;
    shape.config.num_layers = 2;
    shape.config.num_heads = 4;
    shape.config.num_kv_heads = 2;
    shape.config.head_dim = 8;
    shape.config.max_positions = 128;
    shape.dtype = DType::kF32;
    return shape;
}

std::filesystem::path write_tiny(const std::filesystem::path& folder, models::WriteOptions options,
                                 const models::Shape& shape) {
    return models::write_onnx_llama(shape, folder.string(), options);
}

onnx::ModelProto load_onnx(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    onnx::ModelProto model;
    REQUIRE(model.ParseFromIstream(&file));
    return model;
}

void save_onnx(const onnx::ModelProto& model, const std::filesystem::path& path) {
    std::ofstream file(path, std::ios::binary);
    REQUIRE(model.SerializeToOstream(&file));
}

onnx::NodeProto& node_of(onnx::ModelProto& model, const std::string& op_type, int index) {
    for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node())
        if (node.op_type() == op_type && index-- == 0) return node;
    throw InternalError("the model has no such node: " + op_type);
}

std::string file_error(const std::filesystem::path& path) {
    return user_error([&] { importer::import_onnx(path.string()); });
}

std::string import_error(const std::function<void(onnx::ModelProto&)>& change,
                         models::WriteOptions options) {
    TemporaryFolder folder;
    options.external_data = false;
    const std::filesystem::path path = write_tiny(folder.path(), options);
    onnx::ModelProto model = load_onnx(path);
    change(model);
    save_onnx(model, path);
    return user_error([&] { importer::import_onnx(path.string()); });
}

namespace {

class Renamer {
public:
    explicit Renamer(uint64_t seed) : random_(seed) {}

    void graph(onnx::GraphProto& g) {
        for (auto& v : *g.mutable_input()) v.set_name(name(v.name()));
        for (auto& v : *g.mutable_output()) v.set_name(name(v.name()));
        for (auto& v : *g.mutable_value_info()) v.set_name(name(v.name()));
        for (auto& t : *g.mutable_initializer()) t.set_name(name(t.name()));
        nodes(*g.mutable_node());
    }

    void function(onnx::FunctionProto& f) {
        for (auto* list : {f.mutable_input(), f.mutable_output()})
            for (std::string& s : *list) s = name(s);
        f.clear_value_info();
        nodes(*f.mutable_node());
    }

    void nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
        for (onnx::NodeProto& n : nodes) {
            n.set_name(name("node " + std::to_string(names_.size())));
            for (auto* list : {n.mutable_input(), n.mutable_output()})
                for (std::string& s : *list) s = name(s);
            for (onnx::AttributeProto& a : *n.mutable_attribute())
                if (a.has_g()) graph(*a.mutable_g());
        }
    }

private:
    std::string name(const std::string& old) {
        if (old.empty()) return old;
        std::string& fresh = names_[old];
        if (fresh.empty()) fresh = std::to_string(random_()) + "_" + std::to_string(names_.size());
        return fresh;
    }

    std::mt19937_64 random_;
    std::map<std::string, std::string> names_;
};

}  // namespace

void randomize_names(onnx::ModelProto& model, uint64_t seed) {
    Renamer(seed).graph(*model.mutable_graph());
    for (onnx::FunctionProto& f : *model.mutable_functions()) Renamer(++seed).function(f);
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
    return largest;
}

}  // namespace cleave::test
