// SPDX-License-Identifier: Apache-2.0
// Embedding: Gather of a weight's rows by token ids.
#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

Meaning gather_from_view(Recovery& r, const Node& node);

namespace {

Meaning gather(Recovery& r, const Node& node) {
    const WeightView* table = r.get<WeightView>(node.in[0]);
    const View* ids = r.get<View>(node.in[1]);
    if (!table || !ids) return gather_from_view(r, node);
    if (table->vector || r.term(ids->term).kind != Term::kTokenIds || node.integer("axis", 0) != 0)
        return unknown(r, node, "reads a table by something other than token ids");
    Term t{Term::kEmbedding, {ids->term}, table->columns.size()};
    t.weight = *table;
    View out = *ids;
    const int64_t n = table->columns.size();
    out.axes.push_back({{Factor::kFeature, {n, n}, 1}});
    out.term = r.add_term(std::move(t), node);
    return out;
}

}  // namespace

std::vector<NamedMatcher> embedding_matchers() { return {{"Gather", gather}}; }

}  // namespace cleave::importer::from_onnx
