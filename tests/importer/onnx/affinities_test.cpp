// SPDX-License-Identifier: Apache-2.0
// Devices that an ONNX file names for its nodes: both notations, what is passed over, and what is
// refused.
#include <fstream>

#include <onnx/onnx_pb.h>

#include "importer/onnx/affinities.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::importer;
using Catch::Matchers::Contains;

namespace {

onnx::NodeProto& add_node(onnx::ModelProto& model, const std::string& name) {
    onnx::NodeProto& node = *model.mutable_graph()->add_node();
    node.set_op_type("Identity");
    node.set_name(name);
    node.add_input("x");
    node.add_output(name.empty() ? "unnamed_out" : name + "_out");
    return node;
}

void put_on(onnx::NodeProto& node, const std::string& configuration,
            const std::vector<int64_t>& devices) {
    auto& c = *node.add_device_configurations();
    c.set_configuration_id(configuration);
    auto& spec = *c.add_sharding_spec();
    spec.set_tensor_name(node.output(0));
    for (int64_t d : devices) spec.add_device(d);
}

// Two devices with names, an initializer that is not to be read, and `num_nodes` nodes.
onnx::ModelProto annotated_model() {
    onnx::ModelProto model;
    model.set_ir_version(11);
    auto& tensor = *model.mutable_graph()->add_initializer();
    tensor.set_name("w");
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    tensor.set_raw_data(std::string(1 << 20, '\n'));  // would be field 1 again, if it were parsed
    auto& c = *model.add_configuration();
    c.set_name("two");
    c.set_num_devices(2);
    c.add_device("host[0]");
    c.add_device("host[1]");
    return model;
}

Affinities read(const onnx::ModelProto& model) {
    test::TemporaryFolder folder;
    std::ofstream(folder.path() / "m.onnx", std::ios::binary) << model.SerializeAsString();
    return read_affinities(folder.path().string());
}

}  // namespace

TEST_CASE("a file without annotations has no affinities", "[importer]") {
    onnx::ModelProto model = annotated_model();
    add_node(model, "a");
    Affinities found = read(model);
    CHECK(found.nodes.empty());
    CHECK(found.configuration == "two");
    CHECK(found.num_devices == 2);
}

TEST_CASE("device configurations, pipeline stages and metadata name a node's device",
          "[importer]") {
    onnx::ModelProto model = annotated_model();
    put_on(add_node(model, "a"), "two", {1});
    auto& staged = *add_node(model, "").add_device_configurations();
    staged.set_configuration_id("two");
    staged.set_pipeline_stage(0);
    auto& entry = *add_node(model, "c").add_metadata_props();
    entry.set_key("device");
    entry.set_value("cuda[3]");
    put_on(add_node(model, "sharded"), "two", {0, 1});
    Affinities found = read(model);
    REQUIRE(found.nodes.size() == 3);
    CHECK(found.nodes[0].node == "a");
    CHECK(found.nodes[0].device == "host[1]");
    CHECK(found.nodes[0].position == 1);
    CHECK(found.nodes[1].node == "unnamed_out");
    CHECK(found.nodes[1].device == "host[0]");
    CHECK(found.nodes[2].device == "cuda[3]");
    CHECK(found.nodes[2].position == -1);
}

TEST_CASE("of several configurations the first counts", "[importer]") {
    onnx::ModelProto model = annotated_model();
    auto& other = *model.add_configuration();
    other.set_name("eight");
    other.set_num_devices(8);
    onnx::NodeProto& node = add_node(model, "a");
    put_on(node, "eight", {7});
    put_on(node, "two", {0});
    Affinities found = read(model);
    REQUIRE(found.nodes.size() == 1);
    CHECK(found.nodes[0].position == 0);
}

TEST_CASE("annotations that mean nothing are refused with file and node", "[importer]") {
    onnx::ModelProto model = annotated_model();
    put_on(add_node(model, "late"), "two", {2});
    CHECK_THAT(test::user_error([&] { read(model); }),
               Contains("m.onnx") && Contains("node 'late' is annotated for device 2") &&
                   Contains("'two' has 2"));
    model = annotated_model();
    put_on(add_node(model, "lost"), "three", {0});
    CHECK_THAT(test::user_error([&] { read(model); }),
               Contains("node 'lost'") && Contains("'three', which the model does not declare"));
}

TEST_CASE("a damaged file gives affinities or none, and never crashes", "[importer]") {
    onnx::ModelProto model = annotated_model();
    model.mutable_graph()->clear_initializer();
    put_on(add_node(model, "a"), "two", {1});
    std::string bytes = model.SerializeAsString();
    test::TemporaryFolder folder;
    for (size_t i = 0; i < bytes.size(); ++i)
        for (int change : {1, 0x80, 0xff}) {
            std::string damaged = bytes;
            damaged[i] = static_cast<char>(damaged[i] ^ change);
            std::string path = (folder.path() / "m.onnx").string();
            std::ofstream(path, std::ios::binary) << damaged;
            try {
                read_affinities(path);
            } catch (const UserError&) {  // NOLINT(bugprone-empty-catch)
            }
        }
    SUCCEED();
}
