// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "importer/onnx/recover/roles.h"

namespace cleave::importer::from_onnx {
namespace {

int symbols(const ModelInput& input) {
    int n = 0;
    for (size_t i = 1; i < input.dims.size(); ++i) n += !input.dims[i].is_static();
    return n;
}

int64_t positive(const Node& node, std::string_view attribute) {
    return std::clamp<int64_t>(node.integer(attribute, 1), 1, int64_t{1} << 20);
}

// Sizes of [batch, heads, past, head_dim] as the node shows them; -1: it does not say.
Dims shown_by(const Node& node, Ref past, Probe& probe) {
    const auto last = [&](Ref v) {
        return probe.shape(v) && !probe.shape(v)->empty() ? probe.shape(v)->back() : -1;
    };
    if (node.is_contrib("GroupQueryAttention")) {
        const int64_t heads = positive(node, "num_heads"), kv = positive(node, "kv_num_heads");
        const bool packed = node.input(1) == kNone;
        const int64_t features = last(node.input(packed ? 0 : 1));
        return {-1, kv, -1, features < 0 ? -1 : features / (packed ? heads + 2 * kv : kv)};
    }
    if (node.is_contrib("MultiHeadAttention")) {
        const int64_t heads = positive(node, "num_heads"), features = last(node.input(1));
        return {-1, heads, -1, features < 0 ? -1 : features / heads};
    }
    const size_t value = node.is("Attention") && node.input(5) == past ? 2 : 1;
    if (node.is("Attention") && node.input(value) != kNone && probe.shape(node.input(value))) {
        const Dims& s = *probe.shape(node.input(value));
        if (s.size() == 4) return {-1, s[1], -1, s[3]};
        const int64_t kv = positive(node, "kv_num_heads");
        return {-1, kv, -1, s.empty() ? -1 : s.back() / kv};
    }
    if (node.is("Concat") && node.in.size() == 2 && probe.shape(node.input(1))) {
        Dims dims = *probe.shape(node.input(1));
        int64_t axis = node.integer("axis", 0);
        if (axis < 0) axis += static_cast<int64_t>(dims.size());
        if (axis >= 0 && axis < static_cast<int64_t>(dims.size())) dims[axis] = -1;
        return dims;
    }
    return {};
}

}  // namespace

void resolve_past_sizes(Model& model, const std::vector<InputRole>& roles) {
    std::map<Ref, size_t> wanted;
    for (size_t i = 0; i < model.inputs.size(); ++i)
        if (roles[i] == InputRole::kPast && symbols(model.inputs[i]) > 1)
            wanted[model.inputs[i].value] = i;
    if (wanted.empty()) return;
    Probe probe(model, roles, {2, 5, 3, {}});
    for (const Node& node : model.nodes)
        for (Ref in : node.in) {
            auto found = wanted.find(in);
            if (found == wanted.end()) continue;
            ModelInput& input = model.inputs[found->second];
            const Dims shown = shown_by(node, in, probe);
            for (size_t d = 1; d < input.dims.size() && shown.size() == input.dims.size(); ++d)
                if (!input.dims[d].is_static() && shown[d] > 0) input.dims[d] = Dim(shown[d]);
        }
}

}  // namespace cleave::importer::from_onnx
