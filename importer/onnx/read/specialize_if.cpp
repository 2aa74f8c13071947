// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>
#include <vector>

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

// The branch that is right when a cache is given: the one whose nodes read more of the graph's
// inputs (the other ignores the past). Nothing when both read the same.
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

using Renamed = std::map<std::string, std::string>;

// Inner names as the outer graph knows them, in bodies of nested nodes too.
void rename_inputs(NodeProto& node, const Renamed& renamed) {
    for (std::string& name : *node.mutable_input())
        if (auto it = renamed.find(name); it != renamed.end()) name = it->second;
    for (AttributeProto& a : *node.mutable_attribute()) {
        if (!a.has_g()) continue;
        for (NodeProto& inner : *a.mutable_g()->mutable_node()) rename_inputs(inner, renamed);
        for (onnx::ValueInfoProto& v : *a.mutable_g()->mutable_output())
            if (auto it = renamed.find(v.name()); it != renamed.end()) v.set_name(it->second);
    }
}

// Puts the branch's nodes in place of the If and gives the names of its outputs. Inner names get a
// prefix, for both branches may use the same ones and the outer graph may too.
std::vector<std::string> splice(GraphProto& out, const GraphProto& body,
                                const std::string& prefix) {
    Renamed renamed;
    for (const onnx::TensorProto& t : body.initializer()) renamed[t.name()];
    for (const NodeProto& n : body.node())
        for (const std::string& o : n.output())
            if (!o.empty()) renamed[o];
    for (auto& [name, to] : renamed) to = prefix + name;
    std::vector<std::string> results;
    for (const onnx::ValueInfoProto& v : body.output()) {
        auto inner = renamed.find(v.name());
        results.push_back(inner == renamed.end() ? v.name() : inner->second);
    }
    for (const onnx::TensorProto& t : body.initializer()) {
        *out.add_initializer() = t;
        out.mutable_initializer(out.initializer_size() - 1)->set_name(renamed[t.name()]);
    }
    for (const NodeProto& n : body.node()) {
        NodeProto* copy = out.add_node();
        *copy = n;
        rename_inputs(*copy, renamed);
        for (std::string& name : *copy->mutable_output())
            if (auto it = renamed.find(name); it != renamed.end()) name = it->second;
    }
    return results;
}

void add_node(GraphProto& out, const std::string& op, const std::string& name,
              const std::vector<std::string>& inputs, const std::string& output) {
    NodeProto* node = out.add_node();
    node->set_op_type(op);
    node->set_name(name);
    for (const std::string& in : inputs) node->add_input(in);
    node->add_output(output);
}

void take_branch(GraphProto& out, const NodeProto& node, const GraphProto& body, int serial) {
    const auto results = splice(out, body, fmt::format("branch{}/", serial));
    for (int i = 0; i < node.output_size() && i < static_cast<int>(results.size()); ++i)
        add_node(out, "Identity", "", {results[static_cast<size_t>(i)]}, node.output(i));
}

// A choice that depends on data: the nodes of both branches, and for each output an If without
// bodies that takes the condition and both values.
bool keep_both_branches(GraphProto& out, const NodeProto& node, const std::string& serial) {
    const GraphProto *yes = branch(node, "then_branch"), *no = branch(node, "else_branch");
    if (!yes || !no || node.input_size() != 1 || yes->output_size() != node.output_size() ||
        no->output_size() != node.output_size())
        return false;
    const auto then_values = splice(out, *yes, serial + "then/"),
               else_values = splice(out, *no, serial + "else/");
    for (int i = 0; i < node.output_size(); ++i)
        if (!node.output(i).empty())
            add_node(out, "If", node.name(),
                     {node.input(0), then_values[static_cast<size_t>(i)],
                      else_values[static_cast<size_t>(i)]},
                     node.output(i));
    return true;
}

void replace_nodes(GraphProto& graph, GraphProto& flat) {
    graph.mutable_node()->Swap(flat.mutable_node());
    for (const onnx::TensorProto& t : flat.initializer()) *graph.add_initializer() = t;
}

// Ifs of branches come to light one level at a time.
void flatten_choices(GraphProto& graph) {
    constexpr int kDeepest = 8;
    for (int level = 0; level < kDeepest; ++level) {
        bool changed = false;
        GraphProto flat;
        for (int i = 0; i < graph.node_size(); ++i) {
            const NodeProto& node = graph.node(i);
            const bool is_choice =
                node.op_type() == "If" && node.domain().empty() &&
                keep_both_branches(flat, node, fmt::format("if{}.{}/", level, i));
            if (!is_choice) *flat.add_node() = node;
            changed = changed || is_choice;
        }
        if (!changed) return;
        replace_nodes(graph, flat);
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
        notes.push_back(fmt::format(
            "node '{}' (If): took the branch that reads the past",
            node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name()));
    }
    if (!chosen.empty()) {
        GraphProto flat;
        for (int i = 0; i < graph.node_size(); ++i) {
            if (auto it = chosen.find(i); it != chosen.end())
                take_branch(flat, graph.node(i), *it->second, i);
            else
                *flat.add_node() = graph.node(i);
        }
        replace_nodes(graph, flat);
    }
    flatten_choices(graph);
}

}  // namespace cleave::importer::from_onnx
