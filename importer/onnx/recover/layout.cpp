// SPDX-License-Identifier: Apache-2.0
// Reshape, Transpose, Slice and their like: they move no number, so they only rewrite a view. Also
// the last token's slice (a Select) and joins of slices.
#include <numeric>

#include "importer/onnx/recover/matchers.h"

namespace cleave::importer::from_onnx {
namespace {

// The views inside a meaning that a change of layout touches; none: it must not.
std::vector<View*> views_of(Meaning& m) {
    if (auto* v = std::get_if<View>(&m)) return {v};
    if (auto* s = std::get_if<Scores>(&m)) return {&s->layout};
    if (auto* e = std::get_if<Elementwise>(&m)) return {&e->x};
    if (auto* n = std::get_if<Normalized>(&m)) return {&n->x};
    if (auto* turned = std::get_if<Rotated>(&m)) return {&turned->x};
    if (auto* half = std::get_if<RopeHalf>(&m)) return {&half->low, &half->high};
    return {};
}

template <class F>
Meaning with_view(Recovery& r, const Node& node, F change) {
    Meaning m = r.meaning(node.input(0)).meaning;
    const std::vector<View*> views = views_of(m);
    if (views.empty())
        return unknown(r, node, "changes the layout of a value in the middle of a pattern");
    for (View* v : views) {
        std::optional<View> changed = change(*v);
        if (!changed)
            return unknown(r, node,
                           "mixes batch, tokens, heads and features in a way no Llama does");
        *v = *changed;
    }
    return m;
}

// Reshape, Flatten, Unsqueeze, Squeeze.
Meaning reshape(Recovery& r, const Node& node) {
    const auto to = r.sizes(node.output(0));
    if (!to) return unknown(r, node, "the shape it gives is not known");
    return with_view(r, node, [&](const View& v) { return reshaped(v, *to); });
}

Meaning transpose(Recovery& r, const Node& node) {
    return with_view(r, node, [&](const View& v) {
        std::vector<int64_t> perm(v.axes.size());
        std::iota(perm.rbegin(), perm.rend(), 0);
        if (auto given = node.integers("perm")) perm = *given;
        return transposed(v, perm);
    });
}

Meaning expand(Recovery& r, const Node& node) {
    const auto to = r.sizes(node.output(0));
    if (!to) return unknown(r, node, "the shape it gives is not known");
    return with_view(r, node, [&](const View& v) { return expanded(v, *to); });
}

Meaning keep(Recovery& r, const Node& node) { return r.meaning(node.input(0)).meaning; }

// A constant cast to the type of an activation stays what it is; so does an activation.
Meaning cast_like(Recovery& r, const Node& node) {
    return r.is_known(node.input(0)) || r.get<View>(node.input(1))
               ? keep(r, node)
               : unknown(r, node, "casts to the type of an integer");
}

Meaning cast(Recovery& r, const Node& node) {
    const auto type = dtype_of(static_cast<int32_t>(node.integer("to", 1)));
    const View* v = r.get<View>(node.input(0));
    const bool ids = v && v->term.valid() && r.term(v->term).kind == Term::kTokenIds;
    if (!ids && !(type && is_floating(*type)))
        return unknown(r, node, "turns an activation into integers");
    return keep(r, node);
}

// The rows of the last token of each sequence: [batch, features] or [batch, 1, features].
std::optional<View> last_token(Recovery& r, const Node& node, const View& v, size_t axis) {
    const TermId x = is_token_rows(v) ? r.materialize(v, node) : TermId();
    if (!x.valid()) return std::nullopt;
    Term t{Term::kSelect, {x}, r.term(x).features};
    View out = v;
    out.term = r.add_term(std::move(t), node);
    out.offset = 0;
    out.scale = 1;
    out.axes[axis].clear();
    return out;
}

Meaning slice(Recovery& r, const Node& node) {
    const auto from = r.sizes(node.input(0)), to = r.sizes(node.output(0));
    if (!from || !to) return unknown(r, node, "the shape it gives is not known");
    const Tensor *first = r.data(node.input(1)), *second = r.probe(1).data(node.input(1));
    auto axes = node.input(3) == kNone ? std::nullopt : r.integers(node.input(3));
    auto steps = node.input(4) == kNone ? std::nullopt : r.integers(node.input(4));
    const auto as_many = [&](const auto& list) {
        return !list || list->size() == first->integers.size();
    };
    if (!first || !second || first->real || second->count() != first->count() ||
        (!axes && node.input(3) != kNone) || !as_many(axes) || !as_many(steps) ||
        from->size() != to->size())
        return unknown(r, node, "its bounds are not known");
    return with_view(r, node, [&](View v) -> std::optional<View> {
        if (v.axes.size() != from->size()) return std::nullopt;
        for (int64_t i = 0; i < first->count(); ++i) {
            const int64_t axis = r.axis_of(node, axes ? (*axes)[i] : i, v.axes.size());
            if ((*to)[axis] == (*from)[axis]) continue;
            const int64_t step = steps ? (*steps)[i] : 1;
            const auto start = [&](const Tensor& t, int s) {
                return t.integers[i] < 0 ? t.integers[i] + (*from)[axis][s] : t.integers[i];
            };
            std::optional<View> part;
            if ((*to)[axis] == Size{0, 0}) {  // what a rotation of whole heads leaves over
                part = v;
                part->axes[axis] = {{Factor::kFeature, {0, 0}, 1}};
            } else if (is_only(v.axes[axis], Factor::kTokens)) {
                const bool last = (*to)[axis] == Size{1, 1} &&
                                  start(*first, 0) == (*from)[axis][0] - 1 &&
                                  start(*second, 1) == (*from)[axis][1] - 1;
                if (last) part = last_token(r, node, v, axis);
            } else if ((*to)[axis][0] == (*to)[axis][1]) {
                part = sliced(v, axis, start(*first, 0), (*to)[axis][0], step);
            }
            if (!part) return std::nullopt;
            v = *part;
        }
        return v;
    });
}

Meaning split(Recovery& r, const Node& node) {
    const View* v = r.get<View>(node.input(0));
    if (!v) return unknown(r, node, "splits a value in the middle of a pattern");
    const int64_t axis = r.axis_of(node, node.integer("axis", 0), v->axes.size());
    int64_t begin = 0;
    Meaning first = unknown(r, node, "splits an axis that is not features");
    const View source = *v;
    for (size_t i = 0; i < node.out.size(); ++i) {
        const auto to = r.sizes(node.out[i]);
        if (!to || to->size() != source.axes.size() || (*to)[axis][0] != (*to)[axis][1])
            return first;
        const std::optional<View> part = sliced(source, axis, begin, (*to)[axis][0], 1);
        if (!part) return first;
        begin += (*to)[axis][0];
        if (i == 0)
            first = *part;
        else
            r.set(node, i, *part);
    }
    return first;
}

// Evenly spaced indices along an axis of features: a slice with a step.
std::optional<View> gathered_run(Recovery& r, const Node& node, const View& v) {
    const auto indices = r.integers(node.input(1));
    const auto shape = r.sizes(node.input(1));
    if (!indices || indices->size() < 2 || !shape || shape->size() != 1) return std::nullopt;
    const int64_t axis = r.axis_of(node, node.integer("axis", 0), v.axes.size());
    const int64_t step = (*indices)[1] - (*indices)[0];
    for (size_t i = 1; i < indices->size(); ++i)
        if ((*indices)[i] - (*indices)[i - 1] != step) return std::nullopt;
    return sliced(v, axis, (*indices)[0], static_cast<int64_t>(indices->size()), step);
}

// One index along an axis of features, or the last token.
Meaning gather(Recovery& r, const Node& node) {
    const View* v = r.get<View>(node.input(0));
    if (v)
        if (auto run = gathered_run(r, node, *v)) return *run;
    const auto from = r.sizes(node.input(0)), to = r.sizes(node.output(0));
    const Tensor *a = r.data(node.input(1)), *b = r.probe(1).data(node.input(1));
    if (!v || !from || !to || !a || !b || a->real || a->count() != 1 || b->count() != 1)
        return unknown(r, node, "gathers activations by an index that is not one constant");
    if (v->axes.size() != from->size()) return unknown(r, node, "its shape is not known");
    const int64_t axis = r.axis_of(node, node.integer("axis", 0), from->size());
    const auto index = [&](const Tensor& t, int s) {
        return t.integers[0] < 0 ? t.integers[0] + (*from)[axis][s] : t.integers[0];
    };
    const View source = *v;
    std::optional<View> part;
    if (is_only(source.axes[axis], Factor::kTokens)) {
        if (index(*a, 0) == (*from)[axis][0] - 1 && index(*b, 1) == (*from)[axis][1] - 1)
            part = last_token(r, node, source, axis);
    } else if (index(*a, 0) == index(*b, 1)) {
        part = sliced(source, axis, index(*a, 0), 1, 1);
    }
    if (part) part = reshaped(*part, *to);
    return part ? Meaning(*part) : unknown(r, node, "gathers something other than the last token");
}

// Neighbouring slices of one value, put together again.
std::optional<View> rejoined(Recovery& r, const Node& node, int64_t axis) {
    const View* first = r.get<View>(node.input(0));
    if (!first) return std::nullopt;
    View joined = *first;
    axis = r.axis_of(node, axis, joined.axes.size());
    if (joined.axes[axis].size() != 1 || joined.axes[axis][0].kind != Factor::kFeature)
        return std::nullopt;
    Factor& f = joined.axes[axis][0];
    for (size_t i = 1; i < node.in.size(); ++i) {
        const View* next = r.get<View>(node.input(i));
        if (!next || next->axes.size() != joined.axes.size() || next->axes[axis].size() != 1)
            return std::nullopt;
        View expected = *next;
        const Factor& g = next->axes[axis][0];
        if (g.kind != f.kind || g.stride != f.stride ||
            next->offset != joined.offset + f.size[0] * f.stride)
            return std::nullopt;
        const int64_t n = f.size[0] + g.size[0];
        expected.offset = joined.offset;
        f.size = expected.axes[axis][0].size = {n, n};
        if (!(expected == joined)) return std::nullopt;
    }
    return joined;
}

// The only input that has any elements, when all others are empty along the axis.
std::optional<Ref> only_filled(Recovery& r, const Node& node) {
    std::optional<Ref> filled;
    for (Ref in : node.in) {
        const auto sizes = r.sizes(in);
        if (!sizes) return std::nullopt;
        const int64_t axis = r.axis_of(node, node.integer("axis", 0), sizes->size());
        if ((*sizes)[axis] == Size{0, 0}) continue;
        if (filled) return std::nullopt;
        filled = in;
    }
    return filled;
}

Meaning concat(Recovery& r, const Node& node) {
    if (node.in.size() == 1) return keep(r, node);
    if (const auto filled = only_filled(r, node)) return r.meaning(*filled).meaning;
    if (auto cache = match_cache_concat(r, node)) return *cache;
    if (auto rope = match_rope_concat(r, node)) return *rope;
    if (auto view = rejoined(r, node, node.integer("axis", 0))) return *view;
    return unknown(r, node, "joins activations in a way that is neither a cache nor a rotation");
}

}  // namespace

std::vector<NamedMatcher> layout_matchers() {
    return {{"Reshape", reshape},   {"Flatten", reshape},     {"Unsqueeze", reshape},
            {"Squeeze", reshape},   {"Transpose", transpose}, {"Expand", expand},
            {"Slice", slice},       {"Split", split},         {"Concat", concat},
            {"Identity", keep},     {"Dropout", keep},        {"Cast", cast},
            {"CastLike", cast_like}};
}

// Gather is in embedding.cpp's table; this is its part for activations.
Meaning gather_from_view(Recovery& r, const Node& node) { return gather(r, node); }

}  // namespace cleave::importer::from_onnx
