// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/recover/roles.h"

#include <set>
#include <string_view>

namespace cleave::importer::from_onnx {
namespace {

bool is_one_of(const Node& node, std::initializer_list<std::string_view> ops) {
    for (std::string_view op : ops)
        if (node.op == op) return true;
    return false;
}

class Uses {
public:
    explicit Uses(const Model& model) : model_(model), consumers_(model.values.size()) {
        for (size_t i = 0; i < model.nodes.size(); ++i)
            for (Ref v : model.nodes[i].in)
                if (v != kNone) consumers_[v].push_back(static_cast<int>(i));
    }

    // Values that carry the same numbers as `from`, in another shape or type.
    std::vector<Ref> same_numbers(Ref from, bool scaled) const {
        if (from == kNone) return {};
        std::vector<Ref> found{from};
        for (size_t i = 0; i < found.size(); ++i)
            for (int n : consumers_[found[i]]) {
                const Node& node = model_.nodes[n];
                bool same = node.input(0) == found[i] &&
                            is_one_of(node, {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze",
                                             "Flatten", "DequantizeLinear"});
                same = same || (scaled && is_one_of(node, {"Mul", "Div"}) && is_scaling(node));
                if (same && node.output(0) != kNone && found.size() < 1000)
                    found.push_back(node.output(0));
            }
        return found;
    }

    // Gathers rows of a table of numbers that go on to be normalised: an embedding.
    bool looks_up_embedding(Ref ids) const {
        for (Ref v : same_numbers(ids, false))
            for (int n : consumers_[v]) {
                const Node& node = model_.nodes[n];
                if (is_one_of(node, {"Gather", "GatherBlockQuantized"}) && node.input(1) == v &&
                    is_normalized(node.output(0)))
                    return true;
            }
        return false;
    }

    // Everything that the embedding's rows flow into.
    std::vector<bool> activations(Ref ids) const {
        std::vector<bool> reached(model_.values.size());
        std::vector<Ref> stack;
        for (Ref v : same_numbers(ids, false)) stack.push_back(v);
        while (!stack.empty()) {
            const Ref v = stack.back();
            stack.pop_back();
            for (int n : consumers_[v]) {
                if (is_one_of(model_.nodes[n], {"Shape", "Size"})) continue;
                for (Ref out : model_.nodes[n].out)
                    if (out != kNone && !reached[out]) {
                        reached[out] = true;
                        stack.push_back(out);
                    }
            }
        }
        return reached;
    }

    // Whether the input's numbers (not its shape) reach a wanted node before they meet activations;
    // the node where they meet is asked, too.
    template <class F>
    bool reaches(Ref from, const std::vector<bool>& activations, F wanted) const {
        std::vector<bool> seen(model_.values.size());
        std::vector<Ref> stack{from};
        while (!stack.empty()) {
            const Ref v = stack.back();
            stack.pop_back();
            if (seen[v]) continue;
            seen[v] = true;
            for (int n : consumers_[v]) {
                const Node& node = model_.nodes[n];
                if (is_one_of(node, {"Shape", "Size"})) continue;
                bool meets = false;
                for (Ref in : node.in) meets = meets || (in != kNone && activations[in]);
                if (wanted(node, v, meets)) return true;
                if (meets) continue;
                for (Ref out : node.out)
                    if (out != kNone) stack.push_back(out);
            }
        }
        return false;
    }

private:
    bool is_scaling(const Node& node) const {
        for (Ref v : node.in)
            if (const Constant* c = model_.constant_of(v); c && c->count() == 1) return true;
        return false;
    }

    bool is_normalized(Ref rows) const {
        for (Ref v : same_numbers(rows, true))
            for (int n : consumers_[v]) {
                const Node& node = model_.nodes[n];
                if (node.op.find("Normalization") != std::string::npos) return true;
                if (is_one_of(node, {"Pow", "ReduceMean", "ReduceL2", "MatMul", "Gemm"}))
                    return true;
                if (node.is("Mul") && node.input(0) == node.input(1)) return true;
            }
        return false;
    }

    const Model& model_;
    std::vector<std::vector<int>> consumers_;
};

bool makes_rotation(const std::set<Ref>& tables, const Node& node, Ref from) {
    if (is_one_of(node, {"Cos", "Sin"})) return true;
    if (node.op == "RotaryEmbedding") return node.input(0) != from;
    if (node.op == "GroupQueryAttention") return node.input(9) == from;
    return node.is("Gather") && node.input(1) == from && tables.count(node.input(0)) > 0;
}

bool is_one_number(const ModelInput& input) {
    return input.dims.empty() || (input.dims.size() == 1 && input.dims[0].value == 1);
}

bool hides_keys(const Node& node, Ref from, bool meets_activations) {
    if (!meets_activations) return false;
    if (node.op == "GroupQueryAttention") return node.input(9) != from;  // 9: position ids
    return is_one_of(node, {"Add", "Sub", "Where"}) || node.op.ends_with("Attention");
}

}  // namespace

std::vector<InputRole> find_roles(const Model& model) {
    using T = onnx::TensorProto;
    const Uses uses(model);
    std::set<Ref> tables;  // floating matrices, and their first rows
    for (size_t v = 0; v < model.values.size(); ++v)
        if (const Constant* c = model.constant_of(static_cast<Ref>(v));
            c && c->is_floating() && c->dims.size() == 2)
            tables.insert(static_cast<Ref>(v));
    for (const Node& node : model.nodes)
        if (is_one_of(node, {"Slice", "Cast", "Identity"}) && tables.count(node.input(0)) > 0)
            tables.insert(node.output(0));
    const auto written_at = [](const Node& n, Ref from, bool) {
        return n.is("TensorScatter") && n.input(2) == from;
    };
    const auto counts = [](const Node& n, Ref from, bool) {
        return n.is("Attention") && n.input(6) == from;
    };
    const auto cuts = [](const Node& n, Ref from, bool meets_activations) {
        return n.is("Slice") && meets_activations && n.input(1) == from;
    };
    const auto rotates = [&](const Node& n, Ref from, bool) {
        return makes_rotation(tables, n, from);
    };
    std::vector<bool> activations(model.values.size());
    std::vector<InputRole> roles(model.inputs.size(), InputRole::kOther);
    std::vector<size_t> left;
    bool has_ids = false;
    for (size_t i = 0; i < model.inputs.size(); ++i) {
        const ModelInput& input = model.inputs[i];
        const std::optional<DType> dtype = dtype_of(input.elem_type);
        const bool integer = input.elem_type == T::INT64 || input.elem_type == T::INT32 ||
                             input.elem_type == T::BOOL;
        if (dtype && is_floating(*dtype) && input.dims.size() >= 3) {
            roles[i] = InputRole::kPast;
        } else if (integer && !has_ids && uses.looks_up_embedding(input.value)) {
            roles[i] = InputRole::kTokenIds;
            has_ids = true;
            activations = uses.activations(input.value);
        } else if (integer && input.dims.size() <= 2) {
            left.push_back(i);
        }
    }
    std::erase_if(left, [&](size_t i) {
        const ModelInput& input = model.inputs[i];
        if (input.dims.size() == 2) return false;
        if (uses.reaches(input.value, activations, written_at))
            roles[i] = InputRole::kPastLengths;
        else if (uses.reaches(input.value, activations, counts))
            roles[i] = InputRole::kTotalLengths;
        else if (is_one_number(input) && uses.reaches(input.value, activations, cuts))
            roles[i] = InputRole::kKeptLogits;
        return input.dims.empty() || roles[i] != InputRole::kOther;
    });
    // Positions turn; masks hide. One that does both makes positions out of a mask, unless the
    // other does not turn at all.
    std::vector<bool> turns, hides;
    int turning = 0;
    for (size_t i : left) {
        turns.push_back(uses.reaches(model.inputs[i].value, activations, rotates));
        hides.push_back(uses.reaches(model.inputs[i].value, activations, hides_keys));
        turning += turns.back();
    }
    for (size_t k = 0; k < left.size(); ++k) {
        const bool position = turns[k] && (!hides[k] || (left.size() == 2 && turning == 1));
        if (position || hides[k] || left.size() == 1)
            roles[left[k]] = position ? InputRole::kPositionIds : InputRole::kAttentionMask;
    }
    return roles;
}

void free_static_caches(Model& model, const std::vector<InputRole>& roles) {
    for (const Node& node : model.nodes) {
        if (!node.is("TensorScatter") || node.input(0) == kNone) continue;
        const int index = model.values[node.input(0)].input;
        if (index < 0 || roles[static_cast<size_t>(index)] != InputRole::kPast) continue;
        ModelInput& input = model.inputs[static_cast<size_t>(index)];
        const auto rank = static_cast<int64_t>(input.dims.size());
        int64_t axis = node.integer("axis", -2);
        if (axis < 0) axis += rank;
        if (axis < 1 || axis >= rank || node.text("mode", "linear") != "linear") continue;
        input.static_cache = true;
        input.dims[static_cast<size_t>(axis)] = Dim("capacity");
    }
}

}  // namespace cleave::importer::from_onnx
