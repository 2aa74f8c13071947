// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/mutate.h"

#include <array>
#include <limits>
#include <random>
#include <vector>

namespace cleave::fuzz {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;
using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

constexpr std::array kOps = {"Add",
                             "Sub",
                             "Mul",
                             "Div",
                             "Pow",
                             "Sqrt",
                             "Neg",
                             "Where",
                             "Equal",
                             "And",
                             "Not",
                             "Cast",
                             "CastLike",
                             "Shape",
                             "Reshape",
                             "Transpose",
                             "Slice",
                             "Concat",
                             "Split",
                             "Gather",
                             "GatherND",
                             "GatherElements",
                             "Expand",
                             "Tile",
                             "Range",
                             "ConstantOfShape",
                             "Unsqueeze",
                             "Squeeze",
                             "Flatten",
                             "Trilu",
                             "ScatterND",
                             "ScatterElements",
                             "TensorScatter",
                             "CumSum",
                             "ReduceMean",
                             "ReduceSum",
                             "ReduceMax",
                             "MatMul",
                             "Gemm",
                             "Softmax",
                             "Sigmoid",
                             "Erf",
                             "Tanh",
                             "Gelu",
                             "Cos",
                             "Sin",
                             "Einsum",
                             "Attention",
                             "RMSNormalization",
                             "RotaryEmbedding",
                             "LayerNormalization",
                             "DequantizeLinear",
                             "QuantizeLinear",
                             "DynamicQuantizeLinear",
                             "MatMulInteger",
                             "GroupQueryAttention",
                             "MultiHeadAttention",
                             "SkipSimplifiedLayerNormalization",
                             "SimplifiedLayerNormalization",
                             "MatMulNBits",
                             "FusedMatMul",
                             "QuickGelu",
                             "GatherBlockQuantized",
                             "Identity",
                             "Constant",
                             "If",
                             "Loop",
                             "Size",
                             "Pad",
                             "Min",
                             "Max",
                             "Mod",
                             "Clip",
                             "OneHot",
                             "TopK",
                             "IsNaN",
                             "LessOrEqual",
                             "GreaterOrEqual",
                             "Reciprocal",
                             "Swish",
                             "Dropout",
                             "NonZero",
                             "Resize",
                             "Bogus"};

constexpr std::array<int64_t, 20> kNumbers = {0,
                                              1,
                                              -1,
                                              2,
                                              3,
                                              4,
                                              7,
                                              8,
                                              16,
                                              64,
                                              -2,
                                              255,
                                              256,
                                              65536,
                                              std::numeric_limits<int32_t>::max(),
                                              std::numeric_limits<int32_t>::min(),
                                              int64_t{1} << 40,
                                              int64_t{1} << 62,
                                              std::numeric_limits<int64_t>::max(),
                                              std::numeric_limits<int64_t>::min()};

class Mutator {
public:
    Mutator(onnx::ModelProto& model, uint64_t seed) : model_(model), random_(seed) {}

    void run() {
        for (size_t n = 1 + pick(4); n > 0; --n) change();
    }

private:
    size_t pick(size_t n) { return n == 0 ? 0 : random_() % n; }
    int pick(int n) { return static_cast<int>(pick(static_cast<size_t>(n))); }
    bool chance(int one_in) { return pick(one_in) == 0; }
    int64_t number() {
        return chance(3) ? static_cast<int64_t>(pick(40)) - 8 : kNumbers[pick(kNumbers.size())];
    }
    float real() {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        const std::array<float, 8> values = {
            0.0f,  1.0f,      -1.0f,      1e-38f,
            3e38f, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
        return values[pick(values.size())];
    }

    // The nodes that are changed: of the graph, of a function, of a branch.
    Nodes& nodes() {
        if (model_.functions_size() > 0 && chance(4))
            return *model_.mutable_functions(pick(model_.functions_size()))->mutable_node();
        Nodes& main = *model_.mutable_graph()->mutable_node();
        if (chance(3))
            for (NodeProto& n : main)
                for (AttributeProto& a : *n.mutable_attribute())
                    if (a.has_g() && a.g().node_size() > 0 && chance(2))
                        return *a.mutable_g()->mutable_node();
        return main;
    }

    // The name of some value that the node could read.
    std::string value_name(const Nodes& near) {
        const GraphProto& g = model_.graph();
        switch (pick(8)) {
            case 0:
                if (g.initializer_size() > 0)
                    return g.initializer(pick(g.initializer_size())).name();
                break;
            case 1:
                if (g.input_size() > 0) return g.input(pick(g.input_size())).name();
                break;
            case 2: return chance(8) ? "no such value" : "";
            default: break;
        }
        if (near.empty()) return "";
        const NodeProto& n = near.Get(pick(near.size()));
        return n.output_size() > 0 ? n.output(pick(n.output_size())) : "";
    }

    void change() {
        switch (pick(11)) {
            case 0:
            case 1:
            case 2: rewire(); break;
            case 3: change_node(); break;
            case 4:
            case 5: change_attribute(); break;
            case 6:
            case 7: change_tensor(); break;
            case 8: change_interface(); break;
            case 9: change_functions(); break;
            case 10: change_branches(); break;
            default: break;
        }
    }

    void rewire() {
        Nodes& all = nodes();
        if (all.empty()) return;
        NodeProto& n = *all.Mutable(pick(all.size()));
        NodeProto& other = *all.Mutable(pick(all.size()));
        const int i = pick(n.input_size());
        switch (pick(6)) {
            case 0: n.add_input(value_name(all)); break;
            case 1:
                if (n.input_size() > 0) n.mutable_input()->RemoveLast();
                break;
            case 2:
                if (n.input_size() > 1) n.mutable_input()->SwapElements(i, pick(n.input_size()));
                break;
            case 3:
                if (n.output_size() > 0 && other.output_size() > 0)
                    std::swap(*n.mutable_output(0), *other.mutable_output(0));
                break;
            default:
                if (n.input_size() > 0) n.set_input(i, value_name(all));
        }
    }

    void change_node() {
        Nodes& all = nodes();
        if (all.empty()) return;
        const int i = pick(all.size());
        switch (pick(7)) {
            case 0: all.DeleteSubrange(i, 1); break;
            case 1: {
                const NodeProto copy = all.Get(i);
                *all.Add() = copy;
                break;
            }
            case 2: all.SwapElements(i, pick(all.size())); break;
            case 3:
                all.Mutable(i)->set_domain(chance(2) ? "com.microsoft" : chance(2) ? "" : "odd");
                break;
            case 4:
                if (chance(2))
                    all.Mutable(i)->add_output("extra" + std::to_string(pick(1000)));
                else if (all.Get(i).output_size() > 0)
                    all.Mutable(i)->mutable_output()->RemoveLast();
                break;
            default: all.Mutable(i)->set_op_type(kOps[pick(kOps.size())]);
        }
    }

    void change_attribute() {
        Nodes& all = nodes();
        if (all.empty()) return;
        NodeProto* n = all.Mutable(pick(all.size()));
        for (int tries = 0; tries < 8 && n->attribute_size() == 0; ++tries)
            n = all.Mutable(pick(all.size()));
        if (n->attribute_size() == 0) {
            constexpr std::array kNames = {"axis", "axes",      "perm",    "to",
                                           "k",    "allowzero", "keepdims"};
            AttributeProto* a = n->add_attribute();
            a->set_name(kNames[pick(kNames.size())]);
            a->set_type(AttributeProto::INT);
            a->set_i(number());
            return;
        }
        const int i = pick(n->attribute_size());
        AttributeProto& a = *n->mutable_attribute(i);
        switch (pick(9)) {
            case 0: n->mutable_attribute()->DeleteSubrange(i, 1); break;
            case 1: a.set_type(static_cast<AttributeProto::AttributeType>(pick(15))); break;
            case 2: a.add_ints(number()); break;
            case 3:
                if (a.ints_size() > 0) a.mutable_ints()->RemoveLast();
                break;
            case 4: a.set_f(real()); break;
            case 5: a.set_s(chance(2) ? "" : std::string(pick(40), 'b')); break;
            case 6:
                if (a.has_t()) change_tensor_of(*a.mutable_t());
                break;
            default:
                if (a.ints_size() > 0)
                    a.set_ints(pick(a.ints_size()), number());
                else
                    a.set_i(number());
        }
    }

    void change_tensor() {
        GraphProto& g = *model_.mutable_graph();
        if (chance(2))
            for (int tries = 0; tries < 50 && g.node_size() > 0; ++tries) {
                NodeProto& n = *g.mutable_node(pick(g.node_size()));
                if (n.op_type() != "Constant" || n.attribute_size() == 0) continue;
                if (n.attribute(0).has_t())
                    return change_tensor_of(*n.mutable_attribute(0)->mutable_t());
            }
        if (g.initializer_size() > 0)
            change_tensor_of(*g.mutable_initializer(pick(g.initializer_size())));
    }

    void change_tensor_of(TensorProto& t) {
        switch (pick(8)) {
            case 0: t.set_data_type(static_cast<int>(pick(26))); break;
            case 1: t.add_dims(number()); break;
            case 2:
                if (t.dims_size() > 0) t.mutable_dims()->RemoveLast();
                break;
            case 3:
                if (t.dims_size() > 0) t.set_dims(pick(t.dims_size()), number());
                break;
            case 4:
                if (t.has_raw_data()) t.mutable_raw_data()->resize(pick(512));
                break;
            case 5: {
                auto* entry = t.add_external_data();
                constexpr std::array kKeys = {"location", "offset", "length", "checksum",
                                              "cleave.inline"};
                entry->set_key(kKeys[pick(kKeys.size())]);
                entry->set_value(chance(3)   ? "../up"
                                 : chance(2) ? "weights"
                                             : std::to_string(number()));
                if (chance(2)) t.set_data_location(TensorProto::EXTERNAL);
                break;
            }
            default: {
                // An element of a small integer tensor: shapes, axes, slices.
                std::string* raw = t.mutable_raw_data();
                const int64_t value = number();
                if (raw->size() >= 8)
                    raw->replace(pick(raw->size() / 8) * 8, 8,
                                 reinterpret_cast<const char*>(&value), 8);
                else if (t.int64_data_size() > 0)
                    t.set_int64_data(pick(t.int64_data_size()), value);
            }
        }
    }

    void change_interface() {
        GraphProto& g = *model_.mutable_graph();
        if (chance(8)) {
            if (model_.opset_import_size() > 0)
                model_.mutable_opset_import(0)->set_version(number());
            return;
        }
        if (chance(4) && g.output_size() > 0) {
            g.mutable_output(pick(g.output_size()))->set_name(value_name(g.node()));
            return;
        }
        if (g.input_size() == 0) return;
        onnx::ValueInfoProto& v = *g.mutable_input(pick(g.input_size()));
        auto* type = v.mutable_type()->mutable_tensor_type();
        auto* dims = type->mutable_shape();
        switch (pick(6)) {
            case 0: type->set_elem_type(static_cast<int>(pick(24))); break;
            case 1: dims->add_dim()->set_dim_value(number()); break;
            case 2:
                if (dims->dim_size() > 0) dims->mutable_dim()->RemoveLast();
                break;
            case 3:
                if (dims->dim_size() > 0)
                    dims->mutable_dim(pick(dims->dim_size()))->set_dim_param("n");
                break;
            case 4: g.mutable_input()->DeleteSubrange(pick(g.input_size()), 1); break;
            default:
                if (dims->dim_size() > 0)
                    dims->mutable_dim(pick(dims->dim_size()))->set_dim_value(number());
        }
    }

    // A call of a function that exists, or a new function around a node's copy.
    void change_functions() {
        Nodes& all = nodes();
        if (all.empty()) return;
        NodeProto& n = *all.Mutable(pick(all.size()));
        if (model_.functions_size() > 0 && chance(2)) {
            const onnx::FunctionProto& f = model_.functions(pick(model_.functions_size()));
            n.set_domain(f.domain());
            n.set_op_type(f.name());
            return;
        }
        const NodeProto body = n;
        onnx::FunctionProto& f = *model_.add_functions();
        f.set_domain("fuzz");
        f.set_name("f" + std::to_string(model_.functions_size()));
        for (const std::string& in : body.input()) f.add_input(in);
        for (const std::string& out : body.output()) f.add_output(out);
        *f.add_node() = body;
        *f.add_opset_import() =
            model_.opset_import_size() > 0 ? model_.opset_import(0) : onnx::OperatorSetIdProto();
        n.set_domain(f.domain());
        n.set_op_type(f.name());
        n.clear_attribute();
        auto* set = model_.add_opset_import();
        set->set_domain("fuzz");
        set->set_version(1);
    }

    // An If around a node's copy.
    void change_branches() {
        Nodes& all = nodes();
        if (all.empty()) return;
        NodeProto& n = *all.Mutable(pick(all.size()));
        const NodeProto body = n;
        n.set_op_type("If");
        n.set_domain("");
        n.clear_attribute();
        n.clear_input();
        n.add_input(value_name(all));
        for (const char* name : {"then_branch", "else_branch"}) {
            AttributeProto* a = n.add_attribute();
            a->set_name(name);
            a->set_type(AttributeProto::GRAPH);
            NodeProto* inner = a->mutable_g()->add_node();
            *inner = body;
            for (int i = 0; i < body.output_size(); ++i) {
                if (!chance(4)) inner->set_output(i, body.output(i) + name);
                a->mutable_g()->add_output()->set_name(inner->output(i));
            }
            if (chance(4) && inner->input_size() > 0) inner->set_input(0, value_name(all));
        }
    }

    onnx::ModelProto& model_;
    std::mt19937_64 random_;
};

void shrink_tensor(TensorProto& t, const std::string& data) {
    constexpr size_t kLarge = 512;
    if (t.raw_data().size() + 4 * t.float_data_size() < kLarge) return;
    t.clear_raw_data();
    t.clear_float_data();
    t.clear_external_data();
    t.set_data_location(TensorProto::EXTERNAL);
    auto* entry = t.add_external_data();
    entry->set_key("location");
    entry->set_value(data);
}

void shrink_nodes(Nodes& nodes, const std::string& data);

void shrink_graph(GraphProto& g, const std::string& data) {
    g.clear_doc_string();
    g.clear_value_info();
    g.clear_metadata_props();
    for (TensorProto& t : *g.mutable_initializer()) shrink_tensor(t, data);
    shrink_nodes(*g.mutable_node(), data);
}

void shrink_nodes(Nodes& nodes, const std::string& data) {
    for (NodeProto& n : nodes) {
        n.clear_doc_string();
        n.clear_metadata_props();
        for (AttributeProto& a : *n.mutable_attribute()) {
            if (a.has_t()) shrink_tensor(*a.mutable_t(), data);
            if (a.has_g()) shrink_graph(*a.mutable_g(), data);
        }
    }
}

}  // namespace

void mutate_model(onnx::ModelProto& model, uint64_t seed) { Mutator(model, seed).run(); }

void shrink_model(onnx::ModelProto& model, const std::string& data) {
    model.clear_doc_string();
    model.clear_metadata_props();
    shrink_graph(*model.mutable_graph(), data);
    for (onnx::FunctionProto& f : *model.mutable_functions()) {
        f.clear_doc_string();
        f.clear_value_info();
        shrink_nodes(*f.mutable_node(), data);
    }
}

}  // namespace cleave::fuzz
