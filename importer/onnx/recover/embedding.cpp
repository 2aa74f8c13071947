// SPDX-License-Identifier: Apache-2.0
// Embedding: Gather or GatherBlockQuantized of a weight's rows by token ids.
#include "importer/onnx/recover/matchers.h"
#include "importer/weights/formats.h"

namespace cleave::importer::from_onnx {

Meaning gather_from_view(Recovery& r, const Node& node);

namespace {

// The table as a weight; integers are one too, when DequantizeLinear follows.
std::optional<WeightView> table_of(const Recovery& r, Ref value) {
    if (const WeightView* w = r.get<WeightView>(value)) return *w;
    const Constant* c = r.model.constant_of(value);
    if (!c || c->dims.size() != 2) return std::nullopt;
    WeightView w;
    w.constant = r.model.values[value].constant;
    w.rows = {0, c->dims[0]};
    w.columns = {0, c->dims[1]};
    return w;
}

Meaning rows_of(Recovery& r, const Node& node, const View& ids, const WeightView& table) {
    Term t{Term::kEmbedding, {ids.term}, table.columns.size()};
    t.weight = table;
    View out = ids;
    const int64_t n = table.columns.size();
    out.axes.push_back({{Factor::kFeature, {n, n}, 1}});
    out.term = r.add_term(std::move(t), node);
    return out;
}

bool are_token_ids(const Recovery& r, const View& view) {
    return view.term.valid() && r.term(view.term).kind == Term::kTokenIds;
}

Meaning gather(Recovery& r, const Node& node) {
    const auto table = table_of(r, node.input(0));
    const View* ids = r.get<View>(node.input(1));
    if (!table || !ids) return gather_from_view(r, node);
    if (table->vector || !are_token_ids(r, *ids) || node.integer("axis", 0) != 0)
        return unknown(r, node, "reads a table by something other than token ids");
    const View copy = *ids;
    return rows_of(r, node, copy, *table);
}

// com.microsoft.GatherBlockQuantized: (table, ids, scales, zero points).
Meaning gather_block_quantized(Recovery& r, const Node& node) {
    const View* ids = r.get<View>(node.input(1));
    if (!ids || !are_token_ids(r, *ids))
        return unknown(r, node, "reads a table by something other than token ids");
    const View copy = *ids;
    std::string why;
    const auto table = block_quantized_table(r, node, why);
    return table ? rows_of(r, node, copy, *table) : unknown(r, node, why);
}

// DequantizeLinear of gathered rows: an embedding of a quantised table.
Meaning dequantize_rows(Recovery& r, const Node& node) {
    const View* rows = r.get<View>(node.input(0));
    if (!rows || r.term(rows->term).kind != Term::kEmbedding || node.integer("block_size", 0) != 0)
        return unknown(r, node, "dequantises activations other than rows of an embedding");
    Term t = r.term(rows->term);
    const auto scale = r.model.constant_of(node.input(1)),
               zero = r.model.constant_of(node.input(2));
    const auto dtype = dtype_of(r.model.constants[t.weight.constant].elem_type);
    const QuantizedType* type = dtype ? find_quantized_type(*dtype) : nullptr;
    if (!scale || scale->count() != 1 || !scale->is_floating() ||
        (node.input(2) != kNone && !zero) || !type || !type->is_integer())
        return unknown(r, node,
                       "only integers with one scale for the whole table are supported here");
    Quantization& q = t.weight.quantization;
    t.weight.packing = Packing::kDequantizeLinear;
    t.weight.dtype = *dtype;
    q.scales = scale->data;
    q.scale_dtype = *dtype_of(scale->elem_type);
    q.scale_count = 1;
    t.weight.other_constants = {r.model.values[node.input(1)].constant};
    if (zero) {
        q.zero_points = zero->data;
        q.zero_point_dtype = *dtype;
        t.weight.other_constants.push_back(r.model.values[node.input(2)].constant);
    }
    View out = *rows;
    out.term = r.add_term(std::move(t), node);
    return out;
}

}  // namespace

std::vector<NamedMatcher> embedding_matchers() {
    return {{"Gather", gather},
            {"GatherBlockQuantized", gather_block_quantized},
            {"DequantizeLinear", dequantize_rows}};
}

}  // namespace cleave::importer::from_onnx
