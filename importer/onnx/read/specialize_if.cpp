// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "importer/onnx/read/passes.h"
#include "runtime/base/errors.h"

namespace cleave::importer::from_onnx {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;

const GraphProto* branch(const NodeProto& node, std::string_view key) {
    for (const AttributeProto& a : node.attribute())
        if (a.name() == key && a.has_g()) return &a.g();
    return nullptr;
}

bool is_graph_input(const GraphProto& graph, const std::string& name) {
    for (const onnx::ValueInfoProto& v : graph.input())
        if (v.name() == name) return true;
    return false;
}

// The branch that is right when a cache is given: the one whose nodes read more of the graph's inputs
// (the other ignores the past). Nothing when both read the same.
const GraphProto* branch_with_past(const GraphProto& graph, const NodeProto& node) {
    const auto inputs_read = [&](const GraphProto& body) {
        std::set<std::string> names;
        for (const NodeProto& n : body.node())
            for (const std::string& in : n.input())
                if (is_graph_input(graph, in)) names.insert(in);
        return names.size();
    };
    const GraphProto* then_branch = branch(node, "then_branch");
    const GraphProto* else_branch = branch(node, "else_branch");
    if (!then_branch || !else_branch) return nullptr;
    const size_t a = inputs_read(*then_branch), b = inputs_read(*else_branch);
    if (a == b) return nullptr;
    return a > b ? then_branch : else_branch;
}

// Puts the branch's nodes in place of the If. Inner names get a prefix, for both branches may use the
// same ones and the outer graph may too.
void splice(GraphProto& out, const NodeProto& node, const GraphProto& body, int serial) {
    std::map<std::string, std::string> renamed;
    for (const onnx::TensorProto& t : body.initializer()) renamed[t.name()];
    for (const NodeProto& n : body.node())
        for (const std::string& o : n.output())
            if (!o.empty()) renamed[o];
    for (auto& [name, to] : renamed) to = fmt::format("branch{}/{}", serial, name);
    std::vector<std::pair<std::string, std::string>> identities;
    for (int i = 0; i < body.output_size() && i < node.output_size(); ++i) {
        auto inner = renamed.find(body.output(i).name());
        const std::string from = inner == renamed.end() ? body.output(i).name() : inner->second;
        identities.emplace_back(from, node.output(i));
    }
    for (const onnx::TensorProto& t : body.initializer()) {
        *out.add_initializer() = t;
        out.mutable_initializer(out.initializer_size() - 1)->set_name(renamed[t.name()]);
    }
    for (const NodeProto& n : body.node()) {
        NodeProto* copy = out.add_node();
        *copy = n;
        for (auto* names : {copy->mutable_input(), copy->mutable_output()})
            for (std::string& name : *names)
                if (auto it = renamed.find(name); it != renamed.end()) name = it->second;
    }
    for (const auto& [from, to] : identities) {
        NodeProto* identity = out.add_node();
        identity->set_op_type("Identity");
        identity->add_input(from);
        identity->add_output(to);
    }
}

}  // namespace

void specialize_decoder_branches(onnx::ModelProto& proto, const std::string& path,
                                 std::vector<std::string>& notes) {
    GraphProto& graph = *proto.mutable_graph();
    std::map<int, const GraphProto*> chosen;  // node -> branch
    for (int i = 0; i < graph.node_size(); ++i) {
        const NodeProto& node = graph.node(i);
        if (node.op_type() != "If" || node.input_size() != 1) continue;
        if (!is_graph_input(graph, node.input(0))) continue;
        const GraphProto* body = branch_with_past(graph, node);
        if (!body)
            throw UserError(
                "{}: node '{}' (If) chooses by the graph input '{}' between branches that read the "
                "same inputs; only a choice between decoding with and without past is understood",
                path, node.name(), node.input(0));
        chosen[i] = body;
        notes.push_back(fmt::format("node '{}' (If): took the branch that reads the past",
                                    node.name().empty() ? node.output(0) : node.name()));
    }
    if (chosen.empty()) return;
    GraphProto flat;
    for (int i = 0; i < graph.node_size(); ++i) {
        if (auto it = chosen.find(i); it != chosen.end())
            splice(flat, graph.node(i), *it->second, i);
        else
            *flat.add_node() = graph.node(i);
    }
    graph.mutable_node()->Swap(flat.mutable_node());
    for (const onnx::TensorProto& t : flat.initializer()) *graph.add_initializer() = t;
}

}  // namespace cleave::importer::from_onnx
