// SPDX-License-Identifier: Apache-2.0
// RoPE in pieces: x * cos + concat(-x2, x1) * sin, and RotaryEmbedding operators. cos and sin are
// found by evaluating them at several positions.
#include "importer/onnx/recover/attention.h"
#include "importer/onnx/recover/matchers.h"
#include "importer/onnx/recover/positions.h"

namespace cleave::importer::from_onnx {
namespace {

// Concat(-x2, x1): halves side by side, or the two of each pair along an axis of their own.
std::optional<Rotated> rotated_pairs(Recovery& r, const Node& node) {
    const View *a = r.get<View>(node.input(0)), *b = r.get<View>(node.input(1));
    if (node.in.size() != 2 || !a || !b || a->scale != -b->scale) return std::nullopt;
    View high = *a;
    high.scale = b->scale;
    const int64_t axis = r.axis_of(node, node.integer("axis", 0), b->axes.size());
    auto whole = concatenated(*b, high, static_cast<size_t>(axis));
    if (!whole) return std::nullopt;
    return Rotated{*whole, high.offset - b->offset};
}

bool same_rows(const View& a, const View& b) {
    return a.term == b.term && a.offset == b.offset && a.axes == b.axes && a.scale == b.scale;
}

// The heads whose turning part is x.
struct HeadLayout {
    int64_t heads = 1, head_dim = 0;
};

std::optional<HeadLayout> head_layout(const View& x, int64_t rotary) {
    const std::vector<Factor> f = feature_factors(x);
    for (const Factor& factor : f)
        if (factor.kind != Factor::kFeature) return std::nullopt;
    if (f.empty() || f.size() > 2 || f.back().stride != 1 || rotary <= 0) return std::nullopt;
    if (f.size() == 1 && f[0].size[0] % rotary == 0)
        return HeadLayout{f[0].size[0] / rotary, rotary};
    if (f.size() == 2 && f[1].size[0] == rotary && f[0].stride > rotary)
        return HeadLayout{f[0].size[0], f[0].stride};
    return std::nullopt;
}

}  // namespace

Meaning finish_rope(Recovery& r, const Node& node, const View& x, int64_t heads, int64_t head_dim,
                    int64_t rotary_dim, bool interleaved, RopeTableId table) {
    View plain = x;  // a rotation is linear: a factor may as well follow it
    plain.scale = 1.0;
    const TermId source = r.materialize(plain, node);
    // Divided, not multiplied: the numbers are the file's, and may overflow.
    if (!source.valid() || heads <= 0 || r.term(source).features % heads != 0 ||
        r.term(source).features / heads != head_dim)
        return unknown(r, node, "rotates something that is not whole heads");
    Term t{Term::kRope, {source}, heads * head_dim};
    t.rope = {heads, head_dim, rotary_dim, interleaved, table};
    View out = x;
    out.term = r.add_term(std::move(t), node);
    out.offset = 0;
    r.rotated_from[out.term] = plain;
    return out;
}

namespace {

// x, the part of each head that turns, by the table that cos and sin come from. `width`: entries of
// a row of cos, one for each feature or one for each pair. `distance`: between the features of a
// pair.
Meaning rotation(Recovery& r, const Node& node, const View& x, Ref cos, Ref sin, int64_t width,
                 bool for_each_feature, int64_t distance) {
    const int64_t rotary = for_each_feature ? width : 2 * width;
    const auto layout = head_layout(x, rotary);
    if (!layout)
        return unknown(r, node,
                       "rotates something that is not heads, or not one frequency for each pair");
    const bool interleaved = distance == 1 && rotary > 2;
    if (!interleaved && distance != rotary / 2)
        return unknown(r, node,
                       fmt::format("rotates pairs of features {} apart; halves of a head and "
                                   "neighbouring features are supported",
                                   distance));
    std::string why;
    const RopeTableId table =
        r.rope_tables.find(cos, sin, width, for_each_feature, interleaved, why);
    if (!table.valid()) return unknown(r, node, why);
    if (rotary < layout->head_dim) return PartlyRotated{x, table, interleaved};
    return finish_rope(r, node, x, layout->heads, layout->head_dim, rotary, interleaved, table);
}

std::optional<Meaning> match_halves(Recovery& r, const Node& node) {
    const auto *a = r.get<RopeProduct>(node.input(0)), *b = r.get<RopeProduct>(node.input(1));
    if (!a || !b || a->rotated || b->rotated || a->width != b->width) return std::nullopt;
    if (node.is("Sub")) return RopeHalf{a->x, b->x, a->table, b->table, true, a->width};
    if (!node.is("Add")) return std::nullopt;
    const RopeProduct &high = a->x.offset > b->x.offset ? *a : *b,
                      &low = a->x.offset > b->x.offset ? *b : *a;
    return RopeHalf{low.x, high.x, high.table, low.table, false, a->width};
}

// Both halves of a rotation, side by side or the two of each pair along an axis of their own.
Meaning join_halves(Recovery& r, const Node& node, const RopeHalf& first, const RopeHalf& second) {
    const int64_t axis = r.axis_of(node, node.integer("axis", 0), first.low.axes.size());
    const auto x = concatenated(first.low, first.high, static_cast<size_t>(axis));
    const bool fits = x && first.first && !second.first && first.cos == second.cos &&
                      first.sin == second.sin && first.low == second.low &&
                      first.high == second.high && first.width == second.width;
    if (!fits) return unknown(r, node, "joins halves that are not one rotation");
    return rotation(r, node, *x, first.cos, first.sin, first.width, false,
                    first.high.offset - first.low.offset);
}

// The first features of heads, rotated, and the rest of each, which follows them in the source.
std::optional<View> whole_heads(const View& turned, const View& rest) {
    return concatenated(turned, rest, turned.axes.size() - 1);
}

// A single head's first features were a whole head, until the rest was joined to them.
std::optional<Meaning> join_rest_of_single_head(Recovery& r, const Node& node) {
    const View *turned = r.get<View>(node.input(0)), *rest = r.get<View>(node.input(1));
    if (!turned || !rest || r.term(turned->term).kind != Term::kRope) return std::nullopt;
    const RopeAttrs rope = r.term(turned->term).rope;
    const auto from = r.rotated_from.find(turned->term);
    if (from == r.rotated_from.end() || rope.num_heads != 1 || rope.rotary_dim != rope.head_dim)
        return std::nullopt;
    View source = from->second;
    source.axes = turned->axes;
    source.scale = turned->scale;
    const auto whole = whole_heads(source, *rest);
    if (!whole || contiguous_features(whole->axes.back()) <= rope.rotary_dim) return std::nullopt;
    return finish_rope(r, node, *whole, 1, contiguous_features(whole->axes.back()), rope.rotary_dim,
                       rope.interleaved, rope.table);
}

}  // namespace

std::optional<Meaning> match_rope_concat(Recovery& r, const Node& node) {
    if (auto x = rotated_pairs(r, node)) return *x;
    if (node.in.size() != 2) return std::nullopt;
    const auto *first = r.get<RopeHalf>(node.input(0)), *second = r.get<RopeHalf>(node.input(1));
    if (first && second) return join_halves(r, node, *first, *second);
    const int64_t axis = node.integer("axis", 0);
    if (const View* rest = r.get<View>(node.input(1));
        rest && axis != -1 && axis + 1 != static_cast<int64_t>(rest->axes.size()))
        return std::nullopt;
    if (auto whole = join_rest_of_single_head(r, node)) return whole;
    const auto* part = r.get<PartlyRotated>(node.input(0));
    const View* rest = r.get<View>(node.input(1));
    if (!part || !rest) return std::nullopt;
    const PartlyRotated turned = *part;
    const int64_t rotary = r.rope_tables[turned.table].table.rotary_dim;
    const auto x = whole_heads(turned.x, *rest);
    const auto layout = x ? head_layout(*x, contiguous_features(x->axes.back())) : std::nullopt;
    if (!layout || contiguous_features(turned.x.axes.back()) != rotary)
        return unknown(r, node, "joins rotated features with others that do not follow them");
    return finish_rope(r, node, *x, layout->heads, layout->head_dim, rotary, turned.interleaved,
                       turned.table);
}

namespace {

// Entries of a row of `table` when it is broadcast over the tokens (and heads) of x: the sizes that
// match x's last axes, up to the tokens. 0: it is no such table.
int64_t table_width(Recovery& r, const View& x, Ref table) {
    const auto sizes = r.sizes(table);
    if (!sizes) return 0;
    int64_t width = 1;
    for (size_t back = 1; back <= sizes->size() && back <= x.axes.size(); ++back) {
        const Axis& axis = x.axes[x.axes.size() - back];
        const Size n = (*sizes)[sizes->size() - back];
        if (is_only(axis, Factor::kTokens) || is_only(axis, Factor::kBatch)) break;
        if (n == Size{1, 1}) continue;
        if (n != axis_size(axis)) return 0;
        width *= n[0];
    }
    return width > 1 ? width : 0;
}

}  // namespace

std::optional<Meaning> match_rope_arithmetic(Recovery& r, const Node& node) {
    if (node.in.size() != 2) return std::nullopt;
    const auto *a = r.get<RopeProduct>(node.input(0)), *b = r.get<RopeProduct>(node.input(1));
    if (node.is("Add") && a && b && a->rotated != b->rotated) {
        const RopeProduct plain = a->rotated ? *b : *a, turned = a->rotated ? *a : *b;
        if (!same_rows(plain.x, turned.x))
            return unknown(r, node, "adds rotations of two different values");
        return rotation(r, node, plain.x, plain.table, turned.table, plain.width, true,
                        turned.distance);
    }
    if (auto halves = match_halves(r, node)) return halves;
    if (!node.is("Mul")) return std::nullopt;
    for (int i : {0, 1}) {
        const Ref table = node.input(1 - i);
        if (!r.get<Known>(table) && !r.get<WeightView>(table)) continue;
        const auto* turned = r.get<Rotated>(node.input(i));
        const View* x = turned ? &turned->x : r.get<View>(node.input(i));
        if (!x || r.number(table)) continue;
        const int64_t width = table_width(r, *x, table);
        if (const auto* w = r.get<WeightView>(table);
            w && (w->columns.size() != width || !is_row_for_each_token(r, *w)))
            continue;
        if (width > 0)
            return RopeProduct{*x, turned != nullptr, table, width, turned ? turned->distance : 0};
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
        head_dim = contiguous_features(view.axes.back());
        const auto layout = head_layout(view, head_dim);
        if (!layout || layout->head_dim != head_dim)
            return unknown(r, node, "its input is not [batch, heads, tokens, head_dim]");
        heads = layout->heads;
    } else {
        const int64_t features = contiguous_features(view.axes.back());
        const auto table = r.sizes(cos);
        if (heads == 0 && table && !table->empty() && table->back()[0] > 0)
            heads = features / (2 * table->back()[0]);
        if (heads <= 0 || features == 0 || features % heads != 0)
            return unknown(r, node, "num_heads does not divide its input");
        head_dim = features / heads;
    }
    int64_t rotary = node.integer("rotary_embedding_dim", 0);
    if (rotary == 0) rotary = head_dim;
    if (node.real("scale", 1.0) != 1.0 || rotary <= 0 || rotary > head_dim || rotary % 2 != 0)
        return unknown(r, node, "a scale other than 1 or an odd rotary dimension is not supported");
    const bool interleaved = node.integer("interleaved", 0) != 0;
    const Ref positions = node.input(contrib ? 1 : 3);
    RopeTableId table;
    std::string why = "its tables are no constants";
    if (positions != kNone) {
        const WeightView *c = r.get<WeightView>(cos), *s = r.get<WeightView>(sin);
        if (c && s && c->columns.size() == rotary / 2 && row_at_is_position(r, positions))
            table = r.rope_tables.stored(*c, *s);
    } else {
        table = r.rope_tables.find(cos, sin, rotary / 2, false, interleaved, why);
    }
    if (!table.valid()) return unknown(r, node, why);
    if (r.rope_tables[table].table.rotary_dim != rotary)
        return unknown(r, node, "its tables have another width than half the rotary dimension");
    return finish_rope(r, node, view, heads, head_dim, rotary, interleaved, table);
}

}  // namespace

std::vector<NamedMatcher> rope_matchers() { return {{"RotaryEmbedding", rotary_embedding}}; }

}  // namespace cleave::importer::from_onnx
