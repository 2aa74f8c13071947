// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/opaque.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace cleave::importer::from_onnx {
namespace {

class OpaqueWriter {
public:
    OpaqueWriter(Recovery& r, Model& model, const TensorGraph& tensors)
        : r_(r), model_(model), tensors_(tensors), ids_(model.values.size()) {}

    Graph run(const std::string& why) {
        g_.path = model_.path;
        g_.name = std::filesystem::path(model_.path).filename().string();
        g_.opset = model_.opset;
        g_.files = model_.files;
        g_.config = {};
        g_.config.model_type = "onnx";
        for (const ModelInput& input : model_.inputs) {
            Value v{model_.values[input.value].name, ValueKind::kTensor, input.dims,
                    dtype(input.elem_type)};
            for (Dim& d : v.shape)
                if (!d.is_static() && d.symbol.empty()) d.symbol = "unnamed";
            g_.inputs.push_back(add(input.value, std::move(v)));
        }
        for (const Node& node : model_.nodes) {
            // What is wrong with the model itself is said of its first operator.
            const bool in_the_way = &node - model_.nodes.data() == std::max(tensors_.node, 0);
            write(node, in_the_way ? tensors_.reason : std::string());
        }
        for (Ref out : model_.outputs)
            if (ids_[out].valid()) g_.outputs.push_back(ids_[out]);
        g_.notes = model_.notes;
        g_.notes.push_back(
            fmt::format("{}: {} nodes are kept as they are", why, model_.nodes.size()));
        if (!tensors_.reason.empty())
            g_.notes.push_back(fmt::format("not computed: {}", tensors_.reason));
        return std::move(g_);
    }

private:
    static DType dtype(int32_t elem_type) { return dtype_of(elem_type).value_or(DType::kF32); }

    ValueId add(Ref ref, Value v) {
        g_.values.push_back(std::move(v));
        return ids_[ref] = ValueId(g_.values.size() - 1);
    }

    // Sizes are known where they follow from those of the inputs.
    std::vector<Dim> shape(Ref ref) {
        std::vector<Dim> dims;
        if (const auto sizes = r_.sizes(ref))
            for (const Size& s : *sizes) dims.push_back(s[0] == s[1] ? Dim(s[0]) : Dim("unknown"));
        return dims;
    }

    int64_t elements(Ref ref) {
        const Dims* s = r_.probe(0).shape(ref);
        return s ? product(*s) : 0;
    }

    // A matrix product does 2 k operations for each element of its result, everything else one.
    int64_t operations(const Node& node) {
        const Dims* a =
            node.in.empty() || node.input(0) == kNone ? nullptr : r_.probe(0).shape(node.input(0));
        const bool matrix = node.op.find("MatMul") != std::string::npos || node.op == "Gemm";
        const int64_t each = matrix && a && !a->empty() ? 2 * a->back() : 1;
        return node.out.empty() || node.output(0) == kNone ? 0 : each * elements(node.output(0));
    }

    WeightId weight(Ref ref) {
        const int index = model_.values[ref].constant;
        if (auto found = weights_.find(index); found != weights_.end()) return found->second;
        const Constant& c = model_.constants[index];
        Weight w;
        w.name = c.name;
        w.shape = c.dims;
        // Plans count matrices: further dimensions go into the columns.
        while (w.shape.size() > 2) {
            w.shape[1] *= w.shape.back();
            w.shape.pop_back();
        }
        const std::optional<DType> known = dtype_of(c.elem_type);
        w.dtype = known.value_or(DType::kUInt8);
        if (!known) {  // of a type that nothing here has: its bytes
            if (w.shape.empty()) w.shape = {1};
            w.shape.back() *= elem_type_bits(c.elem_type) / 8;
        }
        w.source_shape = w.shape;
        w.data = c.data;
        if (w.data.blob.valid()) {
            g_.blobs.push_back(model_.blobs[w.data.blob.index()]);
            w.data.blob = BlobId(g_.blobs.size() - 1);
        }
        w.initializers = {c.name};
        g_.weights.push_back(std::move(w));
        return weights_[index] = WeightId(g_.weights.size() - 1);
    }

    void write(const Node& node, std::string reason) {
        OpaqueAttrs attrs{node.domain, node.op, operations(node), 0, std::move(reason)};
        Op op{OpKind::kOpaque, node.name, -1, {}, {}, {}, {}, {node.name}};
        std::vector<Ref> results;
        for (Ref out : node.out)
            if (out != kNone) results.push_back(out);
        if (results.empty()) return;
        if (op.name.empty()) op.name = model_.values[results[0]].name;
        while (!names_.insert(op.name).second) op.name += "'";
        for (Ref in : node.in) {
            if (in == kNone) continue;
            if (model_.values[in].constant >= 0) {
                op.weights.push_back(weight(in));
                attrs.bytes += g_.weight(op.weights.back()).packed_bytes();
            } else {
                op.inputs.push_back(ids_[in]);
                attrs.bytes += 4 * elements(in);
            }
        }
        for (Ref out : results) {
            attrs.bytes += 4 * elements(out);
            op.outputs.push_back(
                add(out, {model_.values[out].name, ValueKind::kTensor, shape(out), DType::kF32}));
        }
        op.attrs = attrs;
        g_.ops.push_back(std::move(op));
    }

    Recovery& r_;
    Model& model_;
    const TensorGraph& tensors_;
    Graph g_;
    std::vector<ValueId> ids_;
    std::map<int, WeightId> weights_;
    std::set<std::string> names_;
};

}  // namespace

bool looks_like_llama(const Recovery& r) {
    const auto has = [&](Term::Kind kind) {
        return std::any_of(r.terms.begin(), r.terms.end(),
                           [&](const Term& t) { return t.kind == kind; });
    };
    const bool rotates = std::any_of(r.model.nodes.begin(), r.model.nodes.end(), [](const Node& n) {
        return n.op == "Cos" || n.op == "RotaryEmbedding" || n.op == "GroupQueryAttention";
    });
    return has(Term::kEmbedding) && has(Term::kNorm) && (rotates || has(Term::kRope) || r.has_past);
}

Graph build_opaque_graph(Recovery& recovery, Model& model, const std::string& why,
                         const TensorGraph& tensors) {
    return OpaqueWriter(recovery, model, tensors).run(why);
}

}  // namespace cleave::importer::from_onnx
