// SPDX-License-Identifier: Apache-2.0
// Nodes that read constants only: transposed, sliced and cast weights stay views of the file.
#include <algorithm>

#include "importer/onnx/recover/matchers.h"

namespace cleave::importer::from_onnx {
namespace {

WeightView transposed_weight(WeightView w) {
    std::swap(w.rows, w.columns);
    w.transposed = !w.transposed;
    return w;
}

// Only the axis of the last dimension of a vector, or either one of a matrix, may be cut.
Meaning cut(const WeightView& w, int64_t axis, int64_t begin, int64_t end) {
    WeightView part = w;
    Range& range = axis == 0 ? part.rows : part.columns;
    range = {range.begin + begin, range.begin + end};
    return part;
}

Meaning slice(Recovery& r, const Node& node, const WeightView& w) {
    const auto from = r.sizes(node.input(0)), to = r.sizes(node.output(0));
    const auto starts = r.integers(node.input(1)), axes = r.integers(node.input(3));
    if (!from || !to || !starts || starts->size() != 1 || from->size() != (w.vector ? 1u : 2u))
        return Known{};
    if (node.input(4) != kNone && r.number(node.input(4)) != 1.0) return Known{};
    if (to->size() != from->size()) return Known{};
    // One whose size follows the tokens is no part of a weight (rope_table reads such cuts of
    // tables).
    if (std::any_of(to->begin(), to->end(), [](const Size& s) { return s[0] != s[1]; }))
        return Known{};
    const int64_t axis = r.axis_of(node, axes && axes->size() == 1 ? (*axes)[0] : 0, from->size());
    const int64_t n = (*from)[axis][0];
    const int64_t begin =
        std::clamp<int64_t>((*starts)[0] < 0 ? (*starts)[0] + n : (*starts)[0], 0, n);
    return cut(w, axis, begin, begin + (*to)[axis][0]);
}

Meaning split(Recovery& r, const Node& node, const WeightView& w) {
    const int64_t axis = r.axis_of(node, node.integer("axis", 0), w.vector ? 1 : 2);
    int64_t begin = 0;
    for (size_t i = 0; i < node.out.size(); ++i) {
        const auto size = r.sizes(node.out[i]);
        if (!size || size->size() != (w.vector ? 1u : 2u)) return Known{};
        const int64_t end = begin + (*size)[axis][0];
        if (i > 0) r.set(node, i, cut(w, axis, begin, end));
        begin = end;
    }
    const auto first = r.sizes(node.output(0));
    return first && first->size() == (w.vector ? 1u : 2u) ? cut(w, axis, 0, (*first)[axis][0])
                                                          : Meaning(Known{});
}

Meaning add_number(Recovery& r, const Node& node) {
    for (int i : {0, 1}) {
        const WeightView* w = r.get<WeightView>(node.input(i));
        const std::optional<double> number = r.number(node.input(1 - i));
        if (!w || !number) continue;
        WeightView sum = *w;
        sum.added += *number;
        return sum;
    }
    return Known{};
}

}  // namespace

Meaning read_constant_node(Recovery& r, const Node& node) {
    const WeightView* w = node.in.empty() ? nullptr : r.get<WeightView>(node.input(0));
    if (node.op == "DequantizeLinear") return read_dequantize(r, node);
    if (node.is("Add") && node.in.size() == 2) return add_number(r, node);
    if (!w) return Known{};
    const auto to = r.sizes(node.output(0));
    if (node.is("Identity")) return *w;
    if (node.is("CastLike")) return *w;
    if (node.is("Cast")) {
        const auto type = dtype_of(static_cast<int32_t>(node.integer("to", 1)));
        return type && is_floating(*type) ? Meaning(*w) : Meaning(Known{});
    }
    if (node.is("Transpose") && !w->vector && to && to->size() == 2) {
        const auto perm = node.integers("perm");
        return !perm || (perm->size() == 2 && (*perm)[0] == 1) ? Meaning(transposed_weight(*w))
                                                               : Meaning(*w);
    }
    if (node.is("Slice")) return slice(r, node, *w);
    if (node.is("Split")) return split(r, node, *w);
    // Dimensions of 1 around a vector change none of its elements.
    if (w->vector && (node.is("Unsqueeze") || node.is("Squeeze") || node.is("Reshape")) && to) {
        int wide = 0;
        for (const Size& s : *to) wide += s[0] != 1;
        if (wide <= 1 && (to->empty() || to->back()[0] == w->rows.size())) return *w;
    }
    return Known{};
}

}  // namespace cleave::importer::from_onnx
