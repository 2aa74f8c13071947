// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/tensor_graph.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "importer/onnx/probe/probe.h"
#include "importer/onnx/tensor/tensor_reader.h"
#include "runtime/base/convert.h"

namespace cleave::importer::from_onnx {
namespace {

// Elements that were evaluated, as an initializer would have them.
std::vector<std::byte> bytes_of(const Tensor& data, DType dtype) {
    std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(dtype, data.count())));
    const size_t size = dtype_bits(dtype) / 8;
    for (int64_t i = 0; i < data.count(); ++i) {
        std::byte* to = bytes.data() + i * size;
        if (is_floating(dtype)) {
            const auto value = static_cast<float>(data.at(i));
            convert_elements(DType::kF32, &value, dtype, to, 1);
            continue;
        }
        const int64_t value = data.real ? whole(data.reals[i]) : data.integers[i];
        std::memcpy(to, &value, size);  // little-endian
    }
    return bytes;
}

class TensorGraphWriter {
public:
    explicit TensorGraphWriter(const Model& model)
        : model_(model),
          roles_(model.inputs.size(), InputRole::kOther),
          probe_(model, roles_, {}),
          ids_(model.values.size()),
          types_(model.values.size()) {}

    TensorGraph run() {
        try {
            read_inputs();
            for (size_t i = 0; i < model_.nodes.size(); ++i) {
                node_ = static_cast<int>(i);
                if (is_needed(model_.nodes[i])) write(model_.nodes[i]);
            }
            node_ = -1;
            write_outputs();
        } catch (const NotComputed& why) {
            return {std::nullopt, node_, why.reason};
        }
        g_.path = model_.path;
        g_.name = std::filesystem::path(model_.path).filename().string();
        g_.opset = model_.opset;
        g_.files = model_.files;
        g_.config.model_type = "onnx";
        g_.notes = model_.notes;
        g_.notes.push_back(fmt::format("no Llama: {} operators over tensors", g_.ops.size()));
        if (folded_ > 0)
            g_.notes.push_back(
                fmt::format("{} nodes depend on no data and are evaluated", folded_));
        return {std::move(g_), -1, ""};
    }

private:
    void read_inputs() {
        for (const ModelInput& input : model_.inputs) {
            const std::string& name = model_.values[input.value].name;
            const std::optional<DType> dtype = dtype_of(input.elem_type);
            TensorReader::require(dtype.has_value(),
                                  "the graph's input '{}' is {}, which Cleave has no type for",
                                  name, elem_type_name(input.elem_type));
            TensorType type{*dtype, {}};
            for (const Dim& d : input.dims) {
                TensorReader::require(
                    d.is_static(), "the graph's input '{}' has a dimension '{}' that is no number",
                    name, d.symbol);
                type.shape.push_back(d.value);
            }
            g_.inputs.push_back(add(input.value, type));
        }
        for (size_t v = 0; v < model_.values.size(); ++v)
            if (const Constant* c = model_.constant_of(static_cast<Ref>(v)))
                if (const std::optional<DType> dtype = dtype_of(c->elem_type))
                    types_[v] = TensorType{*dtype, c->dims};
        find_needed();
    }

    // Backwards from the outputs; what can be evaluated needs nothing.
    void find_needed() {
        needed_.assign(model_.values.size(), false);
        for (Ref out : model_.outputs) needed_[out] = true;
        for (size_t i = model_.nodes.size(); i-- > 0;) {
            const Node& node = model_.nodes[i];
            if (!is_needed(node)) continue;
            for (Ref in : node.in)
                if (in != kNone) needed_[in] = true;
        }
    }

    bool is_needed(const Node& node) {
        const auto needed = [&](Ref out) { return out != kNone && needed_[out]; };
        return std::any_of(node.out.begin(), node.out.end(), needed);
    }

    ValueId add(Ref ref, const TensorType& type) {
        types_[ref] = type;
        g_.values.push_back({model_.values[ref].name,
                             ValueKind::kTensor,
                             {type.shape.begin(), type.shape.end()},
                             type.dtype});
        return ids_[ref] = ValueId(g_.values.size() - 1);
    }

    // Whether all that the graph needs of the node depends on no data; its types are known then.
    bool fold(const Node& node) {
        for (Ref out : node.out) {
            if (out == kNone || !needed_[out]) continue;
            const Tensor* data = probe_.data(out);
            if (!data) return false;
            types_[out] = TensorType{folded_dtype(node, *data), data->dims};
        }
        ++folded_;
        return true;
    }

    // The evaluator knows reals and integers only.
    DType folded_dtype(const Node& node, const Tensor& data) const {
        if (node.op == "Cast")
            if (const auto to = dtype_of(static_cast<int32_t>(node.integer("to", 0)))) return *to;
        constexpr std::string_view kLogical[] = {
            "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not", "Xor"};
        if (std::find(std::begin(kLogical), std::end(kLogical), node.op) != std::end(kLogical))
            return DType::kBool;
        if (node.op != "Shape" && node.op != "Size" && node.op != "ConstantOfShape") {
            const size_t like = node.op == "Where" || node.op == "CastLike" ? 1 : 0;
            const Ref in = node.input(like);
            if (in != kNone && types_[in] && is_floating(types_[in]->dtype) == data.real)
                return types_[in]->dtype;
        }
        return data.real ? DType::kF32 : DType::kInt64;
    }

    void write(const Node& node) {
        if (fold(node)) return;
        std::vector<std::optional<TensorType>> types;
        for (Ref in : node.in) types.push_back(in == kNone ? std::nullopt : types_[in]);
        TensorReader reader(model_, node, std::move(types), probe_);
        read_tensor_operator(reader);
        TensorAttrs attrs = reader.attrs();
        Op op{OpKind::kTensor, node.name, -1, {}, {}, {}, {}, {node.name}};
        for (size_t i = 0; i < attrs.operands.size(); ++i)
            attrs.operands[i].index = operand(reader.operand_refs()[i], op);
        for (size_t i = 0; i < attrs.results.size(); ++i) {
            TensorOperand& result = attrs.results[i];
            const Ref ref = reader.result_refs()[i];
            result.index = static_cast<int32_t>(op.outputs.size());
            op.outputs.push_back(add(ref, {result.dtype, result.shape}));
            if (op.name.empty()) op.name = model_.values[ref].name;
        }
        for (const auto& [ref, type] : reader.empty_results()) types_[ref] = type;
        if (op.outputs.empty()) return;  // nothing but empty results
        while (!names_.insert(op.name).second) op.name += "'";
        op.attrs = std::move(attrs);
        g_.ops.push_back(std::move(op));
    }

    // Where the operator has it: among its inputs, or (below zero) its weights.
    int32_t operand(Ref ref, Op& op) {
        const auto at = [](auto& all, auto id) {
            const auto found = std::find(all.begin(), all.end(), id);
            const auto index = static_cast<int32_t>(found - all.begin());
            if (found == all.end()) all.push_back(id);
            return index;
        };
        if (ids_[ref].valid()) return at(op.inputs, ids_[ref]);
        return -1 - at(op.weights, weight(ref));
    }

    // A vector of a constant's elements, or of its bytes where two elements share one.
    WeightId weight(Ref ref) {
        const auto [at, fresh] = weights_.try_emplace(ref, WeightId(g_.weights.size()));
        if (!fresh) return at->second;
        const TensorType& type = *types_[ref];
        Weight w;
        w.name = model_.values[ref].name;
        w.dtype = type.dtype;
        w.shape = {type.count()};
        if (const Constant* c = model_.constant_of(ref)) {
            w.data = c->data;
            w.initializers = {c->name};
            if (w.data.blob.valid()) {
                g_.blobs.push_back(model_.blobs[w.data.blob.index()]);
                w.data.blob = BlobId(g_.blobs.size() - 1);
            }
        } else {
            g_.blobs.push_back(bytes_of(*probe_.data(ref), type.dtype));
            w.data.blob = BlobId(g_.blobs.size() - 1);
            w.data.length = g_.blobs.back().size();
        }
        if (dtype_bits(w.dtype) < 8) {
            w.shape = {dtype_bytes(w.dtype, type.count())};
            w.dtype = DType::kUInt8;
        }
        w.source_shape = w.shape;
        g_.weights.push_back(std::move(w));
        return at->second;
    }

    void write_outputs() {
        for (Ref out : model_.outputs) {
            const std::string& name = model_.values[out].name;
            TensorReader::require(model_.values[out].input < 0 && ids_[out].valid(),
                                  "the graph's output '{}' is one of its inputs, or a constant",
                                  name);
            TensorReader::require(
                std::find(g_.outputs.begin(), g_.outputs.end(), ids_[out]) == g_.outputs.end(),
                "the graph's output '{}' is given twice", name);
            g_.outputs.push_back(ids_[out]);
        }
        TensorReader::require(!g_.outputs.empty(), "the graph has no output");
    }

    const Model& model_;
    std::vector<InputRole> roles_;
    Probe probe_;
    Graph g_;
    std::vector<ValueId> ids_;                      // by value
    std::vector<std::optional<TensorType>> types_;  // by value, where known
    std::vector<bool> needed_;                      // by value
    std::map<Ref, WeightId> weights_;
    std::set<std::string> names_;
    int node_ = -1, folded_ = 0;
};

}  // namespace

TensorGraph build_tensor_graph(const Model& model) { return TensorGraphWriter(model).run(); }

}  // namespace cleave::importer::from_onnx
