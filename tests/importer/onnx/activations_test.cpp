// SPDX-License-Identifier: Apache-2.0
// Activations of MLPs in the spellings of ONNX files: each is recovered as its row of
// importer/graph/activation.h.
#include <algorithm>
#include <cmath>

#include "importer/onnx/import.h"
#include "tests/importer/support/onnx_files.h"
#include "tests/support/reference.h"

namespace cleave {
namespace {

using importer::Activation;

struct Spelling {
    const char* name;
    Activation activation;
    // Nodes that make `to` from `from`.
    void (*write)(onnx::GraphProto& graph, const std::string& from, const std::string& to);
};

onnx::NodeProto& add(onnx::GraphProto& graph, const std::string& op,
                     const std::vector<std::string>& inputs, const std::string& output) {
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type(op);
    node.set_name(output + "_" + op);
    for (const std::string& i : inputs) node.add_input(i);
    node.add_output(output);
    return node;
}

void add_number(onnx::GraphProto& graph, const std::string& name, float value) {
    onnx::TensorProto& t = *graph.add_initializer();
    t.set_name(name);
    t.set_data_type(onnx::TensorProto::FLOAT);
    t.add_float_data(value);
}

const Spelling kSpellings[] = {
    {"Relu", Activation::kRelu,
     [](onnx::GraphProto& g, const std::string& from, const std::string& to) {
         add(g, "Relu", {from}, to);
     }},
    {"Relu and Mul with itself", Activation::kRelu2,
     [](onnx::GraphProto& g, const std::string& from, const std::string& to) {
         add(g, "Relu", {from}, to + "_above");
         add(g, "Mul", {to + "_above", to + "_above"}, to);
     }},
    {"Relu and Pow 2", Activation::kRelu2,
     [](onnx::GraphProto& g, const std::string& from, const std::string& to) {
         add_number(g, to + "_two", 2);
         add(g, "Relu", {from}, to + "_above");
         add(g, "Pow", {to + "_above", to + "_two"}, to);
     }},
    {"x * Relu", Activation::kRelu2,
     [](onnx::GraphProto& g, const std::string& from, const std::string& to) {
         add(g, "Relu", {from}, to + "_above");
         add(g, "Mul", {from, to + "_above"}, to);
     }},
};

// In place of Sigmoid and Mul. `gated`: times the up projection, else alone.
void respell(onnx::ModelProto& model, const Spelling& spelling, bool gated) {
    onnx::GraphProto& graph = *model.mutable_graph();
    const auto reader_of = [&](const std::string& value) -> onnx::NodeProto& {
        for (onnx::NodeProto& n : *graph.mutable_node())
            if (n.op_type() == "Mul" && std::count(n.input().begin(), n.input().end(), value))
                return n;
        FAIL("nothing multiplies by " << value);
        return *graph.mutable_node(0);
    };
    for (int layer = 0; layer < 2; ++layer) {
        onnx::NodeProto sigmoid = test::node_of(model, "Sigmoid");
        // Copies, as nodes are dropped below.
        // NOLINTBEGIN(performance-unnecessary-copy-initialization)
        const onnx::NodeProto silu = reader_of(sigmoid.output(0));
        const onnx::NodeProto product = reader_of(silu.output(0));
        // NOLINTEND(performance-unnecessary-copy-initialization)
        const std::string result = gated ? silu.output(0) : product.output(0);
        auto& nodes = *graph.mutable_node();
        const auto drop = [&](const onnx::NodeProto& gone) {
            for (int i = nodes.size() - 1; i >= 0; --i)
                if (nodes[i].output(0) == gone.output(0)) nodes.DeleteSubrange(i, 1);
        };
        drop(sigmoid);
        drop(silu);
        if (!gated) drop(product);
        spelling.write(graph, sigmoid.input(0), result);
    }
}

importer::Graph import_respelled(const Spelling& spelling, bool gated) {
    test::TemporaryFolder folder;
    models::WriteOptions options;
    options.external_data = false;
    const auto path = test::write_tiny(folder.path(), options);
    onnx::ModelProto model = test::load_onnx(path);
    respell(model, spelling, gated);
    test::save_onnx(model, path);
    importer::Graph graph = importer::import_onnx(path.string());
    // The folder goes: what the logits need is read before.
    for (const importer::Op& op : graph.ops) CHECK(op.kind != importer::OpKind::kOpaque);
    return graph;
}

std::vector<importer::Op> activations_of(const importer::Graph& graph) {
    std::vector<importer::Op> ops;
    for (const importer::Op& op : graph.ops)
        if (op.kind == importer::OpKind::kGatedActivation) ops.push_back(op);
    REQUIRE(ops.size() == 2);
    return ops;
}

TEST_CASE("The table's formulas are those of the activations' definitions", "[importer]") {
    for (double x : {-30.0, -3.0, -0.5, 0.0, 0.25, 2.0, 30.0}) {
        const auto value = [&](Activation a) { return importer::row_of(a).formula(x); };
        CHECK(value(Activation::kSilu) == Approx(x / (1 + std::exp(-x))));
        CHECK(value(Activation::kGeluErf) == Approx(x * (1 - 0.5 * std::erfc(x / std::sqrt(2)))));
        CHECK(value(Activation::kRelu) == std::max(x, 0.0));
        CHECK(value(Activation::kRelu2) == x * std::max(x, 0.0));
    }
}

TEST_CASE("A gate is known by its numbers, a squared ReLU in every spelling", "[importer]") {
    for (const Spelling& spelling : kSpellings) {
        INFO(spelling.name);
        const importer::Graph graph = import_respelled(spelling, true);
        for (const importer::Op& op : activations_of(graph)) {
            CHECK(op.as<importer::GatedActivationAttrs>().activation == spelling.activation);
            CHECK(op.inputs[0] != op.inputs[1]);
            CHECK(std::any_of(op.onnx_nodes.begin(), op.onnx_nodes.end(), [](const auto& name) {
                return name.find("Relu") != std::string::npos;
            }));
        }
    }
}

TEST_CASE("A squared ReLU without a gate is ReLU times its own input", "[importer]") {
    for (const Spelling& spelling : kSpellings) {
        if (spelling.activation != Activation::kRelu2) continue;
        INFO(spelling.name);
        const importer::Graph graph = import_respelled(spelling, false);
        for (const importer::Op& op : activations_of(graph)) {
            CHECK(op.as<importer::GatedActivationAttrs>().activation == Activation::kRelu);
            const auto made_by = [&](importer::ValueId v) {
                return std::find_if(graph.ops.begin(), graph.ops.end(), [&](const auto& o) {
                    return std::count(o.outputs.begin(), o.outputs.end(), v) > 0;
                });
            };
            CHECK(made_by(op.inputs[0])->weights == made_by(op.inputs[1])->weights);
        }
    }
}

}  // namespace
}  // namespace cleave
