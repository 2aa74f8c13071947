// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "importer/onnx/read/passes.h"
#include "runtime/base/errors.h"
#include "runtime/base/path_state.h"

namespace cleave::importer::from_onnx {
namespace {

std::string plain_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

class Builder {
public:
    Builder(Model& model, const ImportOptions& options) : model_(model), options_(options) {}

    void run() {
        const onnx::GraphProto& graph = model_.proto->graph();
        for (const onnx::TensorProto& t : graph.initializer()) add_constant(t, t.name());
        if (graph.sparse_initializer_size() > 0)
            throw UserError("{}: sparse initializers are not supported", model_.path);
        for (const onnx::ValueInfoProto& v : graph.input()) add_input(v);
        add_nodes(graph);
        if (model_.nodes.empty())
            throw UserError("{}: the graph has no operator; export the model anew", model_.path);
        sort_nodes();
        for (const onnx::ValueInfoProto& v : graph.output()) {
            auto found = names_.find(v.name());
            if (found == names_.end() || !is_made(found->second))
                throw UserError("{}: nothing makes the graph output '{}'", model_.path, v.name());
            model_.outputs.push_back(found->second);
        }
    }

private:
    bool is_made(Ref v) const {
        const ModelValue& value = model_.values[v];
        return value.producer >= 0 || value.constant >= 0 || value.input >= 0;
    }

    Ref value(const std::string& name) {
        if (name.empty()) return kNone;
        auto [it, inserted] = names_.emplace(name, static_cast<Ref>(model_.values.size()));
        if (inserted) model_.values.push_back({name});
        return it->second;
    }

    Ref define(const std::string& name, const std::string& what) {
        Ref v = value(name);
        if (v != kNone && is_made(v))
            throw UserError(
                "{}: the name '{}' is defined twice (again by {}); names must be unique",
                model_.path, name, what);
        return v;
    }

    void add_constant(const onnx::TensorProto& tensor, const std::string& name) {
        if (name.empty()) throw UserError("{}: an initializer has no name", model_.path);
        Ref v = define(name, "an initializer");
        model_.constants.push_back(locate_tensor(model_, tensor, name, options_));
        model_.values[v].constant = static_cast<int>(model_.constants.size()) - 1;
    }

    // Older files list initializers among the inputs too.
    void add_input(const onnx::ValueInfoProto& info) {
        Ref v = value(info.name());
        if (v == kNone) throw UserError("{}: a graph input has no name", model_.path);
        if (model_.values[v].constant >= 0) return;
        define(info.name(), "a graph input");
        ModelInput input{v, info.type().tensor_type().elem_type(), {}};
        for (const auto& d : info.type().tensor_type().shape().dim()) {
            if (d.has_dim_value() && d.dim_value() < 0)
                throw UserError("{}: graph input '{}' has the negative dimension {}", model_.path,
                                info.name(), d.dim_value());
            input.dims.push_back(d.has_dim_value() ? Dim(d.dim_value()) : Dim(d.dim_param()));
        }
        check_size(info.name(), input.dims);
        model_.values[v].input = static_cast<int>(model_.inputs.size());
        model_.inputs.push_back(std::move(input));
    }

    // Products of dimensions are formed later; none may overflow.
    void check_size(const std::string& name, const std::vector<Dim>& dims) const {
        constexpr int64_t kMost = int64_t{1} << 50;
        int64_t count = 1;
        for (const Dim& d : dims) {
            if (d.value > kMost / count)
                throw UserError("{}: the shape of graph input '{}' overflows", model_.path, name);
            count *= std::max<int64_t>(1, d.value);
        }
    }

    void add_nodes(const onnx::GraphProto& graph) {
        for (const onnx::NodeProto& proto : graph.node()) {
            Node node{proto.name(), plain_domain(proto.domain()), proto.op_type(), {}, {}, &proto};
            for (const std::string& name : proto.input()) node.in.push_back(value(name));
            if (node.is("Constant") && add_constant_node(node)) continue;
            if (node.is("ConstantOfShape")) locate_element(node);
            const int id = static_cast<int>(model_.nodes.size());
            for (const std::string& name : proto.output()) {
                Ref v = define(name, describe(model_, node));
                if (v != kNone) model_.values[v].producer = id;
                node.out.push_back(v);
            }
            model_.nodes.push_back(std::move(node));
        }
    }

    // Its tensor may be where an initializer's may, also in a file of its own.
    void locate_element(Node& node) {
        const onnx::AttributeProto* a = node.attribute("value");
        if (!a || !a->has_t()) return;
        model_.constants.push_back(
            locate_tensor(model_, a->t(), "value of " + describe(model_, node), options_));
        node.element = static_cast<int>(model_.constants.size()) - 1;
        if (model_.constants.back().count() != 1)
            throw UserError("{}: {} is filled with a tensor of {} elements; it takes one",
                            model_.path, describe(model_, node), model_.constants.back().count());
    }

    // A Constant node is an initializer among the nodes.
    bool add_constant_node(const Node& node) {
        if (node.proto->output_size() != 1 || node.proto->attribute_size() != 1) return false;
        const onnx::AttributeProto& a = node.proto->attribute(0);
        onnx::TensorProto tensor;
        if (a.name() == "value" && a.has_t()) {
            add_constant(a.t(), node.proto->output(0));
            return true;
        }
        if (a.name() == "value_int" || a.name() == "value_ints") {
            tensor.set_data_type(onnx::TensorProto::INT64);
            if (a.name() == "value_int") tensor.add_int64_data(a.i());
            for (int64_t i : a.ints()) tensor.add_int64_data(i);
            if (a.name() == "value_ints") tensor.add_dims(a.ints_size());
        } else if (a.name() == "value_float" || a.name() == "value_floats") {
            tensor.set_data_type(onnx::TensorProto::FLOAT);
            if (a.name() == "value_float") tensor.add_float_data(a.f());
            for (float f : a.floats()) tensor.add_float_data(f);
            if (a.name() == "value_floats") tensor.add_dims(a.floats_size());
        } else {
            return false;
        }
        add_constant(tensor, node.proto->output(0));
        return true;
    }

    // Depth-first would recurse; Kahn's algorithm with the file's order as the tie-break.
    void sort_nodes() {
        const size_t n = model_.nodes.size();
        std::vector<int> missing(n, 0);
        std::vector<std::vector<int>> consumers(model_.values.size());
        for (size_t i = 0; i < n; ++i)
            for (Ref v : model_.nodes[i].in) {
                if (v == kNone) continue;
                check_made(model_.nodes[i], v);
                if (model_.values[v].producer < 0) continue;
                ++missing[i];
                consumers[v].push_back(static_cast<int>(i));
            }
        std::vector<int> order;
        order.reserve(n);
        for (size_t i = 0; i < n; ++i)
            if (missing[i] == 0) order.push_back(static_cast<int>(i));
        const bool sorted_already = std::is_sorted(order.begin(), order.end()) && is_topological();
        if (!sorted_already) {
            for (size_t k = 0; k < order.size(); ++k)
                for (Ref v : model_.nodes[order[k]].out)
                    if (v != kNone)
                        for (int c : consumers[v])
                            if (--missing[c] == 0) order.push_back(c);
            if (order.size() < n) report_cycle(missing);
            apply(order);
        }
    }

    void check_made(const Node& node, Ref v) const {
        if (is_made(v)) return;
        throw UserError(
            "{}: {} reads '{}', but no initializer, node or graph input makes it; the file is "
            "incomplete: export it anew",
            model_.path, describe(model_, node), model_.values[v].name);
    }

    bool is_topological() const {
        for (size_t i = 0; i < model_.nodes.size(); ++i)
            for (Ref v : model_.nodes[i].in)
                if (v != kNone && model_.values[v].producer >= static_cast<int>(i)) return false;
        return true;
    }

    void report_cycle(const std::vector<int>& missing) const {
        for (size_t i = 0; i < missing.size(); ++i)
            if (missing[i] > 0)
                throw UserError("{}: the graph has a cycle through {}; a model must be acyclic",
                                model_.path, describe(model_, model_.nodes[i]));
    }

    void apply(const std::vector<int>& order) {
        std::vector<Node> sorted;
        sorted.reserve(order.size());
        for (int i : order) sorted.push_back(std::move(model_.nodes[i]));
        model_.nodes = std::move(sorted);
        for (size_t i = 0; i < model_.nodes.size(); ++i)
            for (Ref v : model_.nodes[i].out)
                if (v != kNone) model_.values[v].producer = static_cast<int>(i);
    }

    Model& model_;
    const ImportOptions& options_;
    std::unordered_map<std::string, Ref> names_;  // looked up only, never iterated
};

}  // namespace

void build_model(Model& model, const ImportOptions& options) { Builder(model, options).run(); }

Model read_model(std::unique_ptr<onnx::ModelProto> proto, const std::string& path,
                 const ImportOptions& options) {
    Model model;
    model.path = path;
    model.proto = std::move(proto);
    model.producer = model.proto->producer_name();
    model.producer_version = model.proto->producer_version();
    const std::optional<uint64_t> size = size_at(model.path);  // none where it was made in memory
    model.files.push_back({model.path, size.value_or(0), size.has_value()});
    for (const onnx::OperatorSetIdProto& set : model.proto->opset_import())
        if (plain_domain(set.domain()).empty()) model.opset = set.version();
    inline_functions(*model.proto, model.path, model.notes);
    specialize_decoder_branches(*model.proto, model.path, model.notes);
    build_model(model, options);
    check_types(model);
    return model;
}

}  // namespace cleave::importer::from_onnx
