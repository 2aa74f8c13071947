// SPDX-License-Identifier: Apache-2.0
// RoPE in pieces: x * cos + concat(-x2, x1) * sin, and RotaryEmbedding operators. cos and sin are found by
// evaluating them at several positions.
#include "importer/onnx/recover/attention.h"

namespace cleave::importer::from_onnx {
namespace {

// Concat(-x2, x1) along the last axis.
std::optional<View> rotated_halves(Recovery& r, const Node& node) {
    const View *a = r.get<View>(node.input(0)), *b = r.get<View>(node.input(1));
    if (node.in.size() != 2 || !a || !b || a->term != b->term || a->axes != b->axes ||
        a->scale != -b->scale)
        return std::nullopt;
    int64_t axis = node.integer("axis", 0);
    const auto rank = static_cast<int64_t>(a->axes.size());
    if (axis != -1 && axis != rank - 1) return std::nullopt;
    const int64_t half = contiguous_features(a->axes.back());
    if (half == 0 || a->offset != b->offset + half) return std::nullopt;
    View whole = *b;
    whole.axes.back() = {{Factor::kFeature, {2 * half, 2 * half}, 1}};
    return whole;
}

bool same_rows(const View& a, const View& b) {
    return a.term == b.term && a.offset == b.offset && a.axes == b.axes && a.scale == b.scale;
}

// How the last axis, of one head, lies in the whole of the features.
struct HeadLayout {
    int64_t heads = 1, head_dim = 0;
};

std::optional<HeadLayout> head_layout(const View& x) {
    const int64_t last = contiguous_features(x.axes.back());
    if (last == 0) return std::nullopt;
    View leading = x;
    leading.axes.pop_back();
    const std::vector<Factor> factors = feature_factors(leading);
    if (factors.empty()) return HeadLayout{1, last};
    if (factors.size() != 1 || factors[0].kind != Factor::kFeature) return std::nullopt;
    return HeadLayout{factors[0].size[0], factors[0].stride};
}

}  // namespace

Meaning finish_rope(Recovery& r, const Node& node, const View& x, int64_t heads, int64_t head_dim,
                    int64_t rotary_dim, bool interleaved, RopeTableId table) {
    const TermId source = r.materialize(x, node);
    if (!source.valid() || r.term(source).features != heads * head_dim)
        return unknown(r, node, "rotates something that is not whole heads");
    Term t{Term::kRope, {source}, heads * head_dim};
    t.rope = {heads, head_dim, rotary_dim, interleaved, table};
    View out = x;
    out.term = r.add_term(std::move(t), node);
    out.offset = 0;
    out.scale = 1.0;
    return out;
}

namespace {

// x, whose last axis is the part of each head that turns, by the table that cos and sin come from.
Meaning rotation(Recovery& r, const Node& node, const View& x, Ref cos, Ref sin, int64_t width) {
    const auto layout = head_layout(x);
    if (!layout) return unknown(r, node, "rotates something that is not heads");
    const int64_t rotary = contiguous_features(x.axes.back());
    std::string why;
    const RopeTableId table = r.rope_table(cos, sin, width, false, why);
    if (!table.valid()) return unknown(r, node, why);
    if (r.rope_tables[table.index()].rotary_dim != rotary)
        return unknown(r, node,
                       "its cos and sin do not have one frequency for each pair of features");
    if (rotary < layout->head_dim) return PartlyRotated{x, table};
    return finish_rope(r, node, x, layout->heads, layout->head_dim, rotary, false, table);
}

// `low` and `high` as one view, when they are neighbours.
std::optional<View> joined(const View& low, const View& high) {
    const int64_t a = contiguous_features(low.axes.back()),
                  b = contiguous_features(high.axes.back());
    View whole = low, other = high;
    whole.axes.back() = other.axes.back() = {{Factor::kFeature, {a + b, a + b}, 1}};
    other.offset -= a;
    if (a == 0 || b == 0 || !(whole == other)) return std::nullopt;
    return whole;
}

std::optional<Meaning> match_halves(Recovery& r, const Node& node) {
    const auto *a = r.get<RopeProduct>(node.input(0)), *b = r.get<RopeProduct>(node.input(1));
    if (!a || !b || a->rotated || b->rotated) return std::nullopt;
    if (node.is("Sub")) return RopeHalf{a->x, b->x, a->table, b->table, true};
    if (!node.is("Add")) return std::nullopt;
    const RopeProduct &high = a->x.offset > b->x.offset ? *a : *b,
                      &low = a->x.offset > b->x.offset ? *b : *a;
    return RopeHalf{low.x, high.x, high.table, low.table, false};
}

}  // namespace

std::optional<Meaning> match_rope_concat(Recovery& r, const Node& node) {
    if (auto x = rotated_halves(r, node)) return Rotated{*x};
    if (node.in.size() != 2) return std::nullopt;
    const auto *first = r.get<RopeHalf>(node.input(0)), *second = r.get<RopeHalf>(node.input(1));
    if (first && second) {
        const auto x = joined(first->low, first->high);
        const bool fits = x && first->first && !second->first && first->cos == second->cos &&
                          first->sin == second->sin && first->low == second->low &&
                          first->high == second->high;
        if (!fits) return unknown(r, node, "joins halves that are not one rotation");
        return rotation(r, node, *x, first->cos, first->sin,
                        contiguous_features(x->axes.back()) / 2);
    }
    const auto* part = r.get<PartlyRotated>(node.input(0));
    const View* rest = r.get<View>(node.input(1));
    if (!part || !rest) return std::nullopt;
    const auto x = joined(part->x, *rest);
    const auto layout = x ? head_layout(*x) : std::nullopt;
    const int64_t head_dim = x ? contiguous_features(x->axes.back()) : 0;
    if (!layout || (layout->heads > 1 && layout->head_dim != head_dim))
        return unknown(r, node,
                       "joins a rotated part of heads with something other than their rest");
    const int64_t rotary = r.rope_tables[part->table.index()].rotary_dim;
    return finish_rope(r, node, *x, layout->heads, head_dim, rotary, false, part->table);
}

std::optional<Meaning> match_rope_arithmetic(Recovery& r, const Node& node) {
    if (node.in.size() != 2) return std::nullopt;
    const auto *a = r.get<RopeProduct>(node.input(0)), *b = r.get<RopeProduct>(node.input(1));
    if (node.is("Add") && a && b && a->rotated != b->rotated) {
        const RopeProduct plain = a->rotated ? *b : *a, turned = a->rotated ? *a : *b;
        if (!same_rows(plain.x, turned.x))
            return unknown(r, node, "adds rotations of two different values");
        return rotation(r, node, plain.x, plain.table, turned.table,
                        contiguous_features(plain.x.axes.back()));
    }
    if (auto halves = match_halves(r, node)) return halves;
    if (!node.is("Mul")) return std::nullopt;
    for (int i : {0, 1}) {
        const Ref table = node.input(1 - i);
        if (!r.get<Known>(table) && !r.get<WeightView>(table)) continue;
        if (const auto* turned = r.get<Rotated>(node.input(i)))
            return RopeProduct{turned->x, true, table};
        const View* x = r.get<View>(node.input(i));
        const auto sizes = x ? r.sizes(table) : std::nullopt;
        if (!x || !sizes || sizes->empty() || sizes->back() != axis_size(x->axes.back())) continue;
        if (sizes->back() == Size{1, 1} || r.number(table) || r.get<WeightView>(table)) continue;
        return RopeProduct{*x, false, table};
    }
    return std::nullopt;
}

namespace {

// RotaryEmbedding of ONNX (x, cos, sin, positions) and of com.microsoft (x, positions, cos, sin).
Meaning rotary_embedding(Recovery& r, const Node& node) {
    const bool contrib = node.domain == "com.microsoft";
    const View* x = r.get<View>(node.input(0));
    const Ref cos = node.input(contrib ? 2 : 1), sin = node.input(contrib ? 3 : 2);
    if (!x) return unknown(r, node, "rotates a value in the middle of a pattern");
    const View view = *x;
    const bool split_heads = view.axes.size() == 4;  // [batch, heads, tokens, head_dim]
    int64_t heads = node.integer("num_heads", 0), head_dim = 0;
    if (split_heads) {
        const auto layout = head_layout(view);
        if (!layout) return unknown(r, node, "its input is not [batch, heads, tokens, head_dim]");
        heads = layout->heads;
        head_dim = contiguous_features(view.axes.back());
        if (heads > 1 && layout->head_dim != head_dim)
            return unknown(r, node, "its heads do not stand together");
    } else {
        const int64_t features = contiguous_features(view.axes.back());
        const auto table = r.sizes(cos);
        if (heads == 0 && table && !table->empty()) heads = features / (2 * table->back()[0]);
        if (heads <= 0 || features == 0 || features % heads != 0)
            return unknown(r, node, "num_heads does not divide its input");
        head_dim = features / heads;
    }
    int64_t rotary = node.integer("rotary_embedding_dim", 0);
    if (rotary == 0) rotary = head_dim;
    if (node.real("scale", 1.0) != 1.0 || rotary > head_dim || rotary % 2 != 0)
        return unknown(r, node, "a scale other than 1 or an odd rotary dimension is not supported");
    const bool interleaved = node.integer("interleaved", 0) != 0;
    const Ref positions = node.input(contrib ? 1 : 3);
    RopeTableId table;
    std::string why = "its tables are no constants";
    if (positions != kNone) {
        const WeightView *c = r.get<WeightView>(cos), *s = r.get<WeightView>(sin);
        if (c && s && c->columns.size() == rotary / 2 && r.row_at_is_position(positions))
            table = r.stored_rope_table(*c, *s);
    } else {
        table = r.rope_table(cos, sin, rotary / 2, interleaved, why);
    }
    if (!table.valid()) return unknown(r, node, why);
    if (r.rope_tables[table.index()].rotary_dim != rotary)
        return unknown(r, node, "its tables have another width than half the rotary dimension");
    return finish_rope(r, node, view, heads, head_dim, rotary, interleaved, table);
}

}  // namespace

std::vector<NamedMatcher> rope_matchers() { return {{"RotaryEmbedding", rotary_embedding}}; }

}  // namespace cleave::importer::from_onnx
