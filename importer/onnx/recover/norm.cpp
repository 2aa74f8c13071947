// SPDX-License-Identifier: Apache-2.0
// RMSNorm: x / sqrt(mean(x^2) + epsilon) * weight, as one operator or in pieces.
#include <algorithm>
#include <cmath>

#include "importer/onnx/recover/matchers.h"

namespace cleave::importer::from_onnx {

Meaning finish_norm(Recovery& r, const Node& node, const View& x, int64_t group, double epsilon,
                    const WeightView& weight) {
    if (!(epsilon >= 0)) return unknown(r, node, fmt::format("its epsilon is {}", epsilon));
    const TermId source = r.materialize(x, node);
    if (!source.valid())
        return unknown(r, node, "normalises something that is not rows of features");
    if (!weight.vector || weight.rows.size() != group)
        return unknown(
            r, node,
            fmt::format("its weight is not a vector of the {} features normalised", group));
    Term t{Term::kNorm, {source}, r.term(source).features};
    t.weight = weight;
    t.epsilon = epsilon;
    t.group = group;
    View out = x;
    out.term = r.add_term(std::move(t), node);
    out.offset = 0;
    out.scale = 1.0;
    return out;
}

namespace {

std::optional<WeightView> vector_weight(const Recovery& r, Ref value) {
    const WeightView* w = r.get<WeightView>(value);
    if (!w) return std::nullopt;
    WeightView v = *w;
    if (!v.vector && v.rows.size() == 1 && !v.transposed) {  // [1, n]
        v.vector = true;
        v.rows = v.columns;
    }
    return v;
}

// RMSNormalization and SimplifiedLayerNormalization: (x, weight).
Meaning normalization(Recovery& r, const Node& node) {
    const View* x = r.get<View>(node.input(0));
    const auto weight = vector_weight(r, node.input(1));
    if (!x || !weight)
        return unknown(r, node, "its input or weight is not what a Llama normalises with");
    const int64_t axis = node.integer("axis", -1), rank = static_cast<int64_t>(x->axes.size());
    if (axis != -1 && axis != rank - 1)
        return unknown(r, node, fmt::format("axis {} is not the last one", axis));
    const View copy = *x;
    return finish_norm(r, node, copy, contiguous_features(copy.axes.back()),
                       node.real("epsilon", 1e-5), *weight);
}

// SkipSimplifiedLayerNormalization: (input, skip, weight, bias) -> norm(input + skip + bias), , ,
// the sum.
Meaning skip_normalization(Recovery& r, const Node& node) {
    const View *a = r.get<View>(node.input(0)), *b = r.get<View>(node.input(1));
    const auto weight = vector_weight(r, node.input(2));
    const auto bias = vector_weight(r, node.input(3));
    if (!a || !b || !weight || (node.input(3) != kNone && !bias))
        return unknown(r, node, "its inputs are not two activations, a weight and a bias");
    const View va = *a, vb = *b;
    TermId x = r.materialize(va, node), y = r.materialize(vb, node);
    if (bias && x.valid() && y.valid()) {  // of the product that was just computed
        const bool second = r.term(y).kind == Term::kLinear && !r.term(y).bias;
        TermId& product = second ? y : x;
        product = biased(r, node, product, *bias);
        if (!product.valid())
            return unknown(r, node, "adds a bias to something other than a matrix product");
    }
    if (!x.valid() || !y.valid() || r.term(x).features != r.term(y).features || !is_token_rows(va))
        return unknown(r, node, "adds values of different shape");
    const int64_t n = r.term(x).features;
    View sum = va;
    sum.term = r.add_term(Term{Term::kAdd, {x, y}, n}, node);
    sum.offset = 0;
    sum.scale = 1.0;
    r.set(node, 3, sum, false);
    return finish_norm(r, node, sum, n, node.real("epsilon", 1e-5), *weight);
}

// ReduceMean of x^2 over the last axis.
Meaning reduce_mean(Recovery& r, const Node& node) {
    const auto e = as_elementwise(r, node.input(0));
    const auto from = r.sizes(node.input(0)), to = r.sizes(node.output(0));
    if (!e || !is_square(*e) || !from || !to || from->size() != to->size())
        return unknown(r, node, "is a mean of something other than squares (keepdims is needed)");
    for (size_t i = 0; i < from->size(); ++i)
        if ((*to)[i] != (i + 1 == from->size() ? Size{1, 1} : (*from)[i]))
            return unknown(r, node, "is a mean over something other than the last axis");
    const int64_t group = contiguous_features(e->x.axes.back());
    if (group == 0) return unknown(r, node, "is a mean over features that do not stand together");
    return MeanSquare{e->x, group};
}

bool same_source(const View& a, const View& b) {
    return a.term == b.term && a.offset == b.offset && a.axes == b.axes;
}

std::optional<Meaning> one_operand(const Node& node, MeanSquare m, std::optional<double> number,
                                   bool mean_first) {
    const bool epsilon = m.stage == MeanSquare::kMeanPlusEpsilon || m.stage == MeanSquare::kMean;
    if (node.is("Add") && number && m.stage == MeanSquare::kMean && *number >= 0) {
        m.epsilon = *number;
        m.stage = MeanSquare::kMeanPlusEpsilon;
        return m;
    }
    if (node.is("Sqrt") && epsilon) {
        m.stage = MeanSquare::kRoot;
        return m;
    }
    if (node.is("Pow") && number && mean_first && epsilon && (*number == -0.5 || *number == 0.5)) {
        m.stage = *number < 0 ? MeanSquare::kInverse : MeanSquare::kRoot;
        return m;
    }
    if ((node.is("Reciprocal") || (node.is("Div") && number == 1.0 && !mean_first)) &&
        m.stage == MeanSquare::kRoot) {
        m.stage = MeanSquare::kInverse;
        return m;
    }
    return std::nullopt;
}

}  // namespace

// A norm by ones whose weight is a Mul behind it (torch's ONNX Runtime back end): one norm.
std::optional<Meaning> replace_weight_of_ones(Recovery& r, const Node& node) {
    for (int i : {0, 1}) {
        const View* x = node.in.size() == 2 ? r.get<View>(node.input(i)) : nullptr;
        const auto weight = x ? vector_weight(r, node.input(1 - i)) : std::nullopt;
        if (!weight || !node.is("Mul") || x->scale != 1.0 || r.term(x->term).kind != Term::kNorm)
            continue;
        const Term& norm = r.term(x->term);
        const auto old = read_constant(r.model, r.model.constants[norm.weight.constant]);
        if (!old || !old->real || norm.weight.added != 0 || weight->rows.size() != norm.group)
            continue;
        if (std::any_of(old->reals.begin(), old->reals.end(), [](double w) { return w != 1.0; }))
            continue;
        Term t = norm;
        t.weight = *weight;
        View out = *x;
        out.term = r.add_term(std::move(t), node);
        return out;
    }
    return std::nullopt;
}

std::optional<Meaning> match_norm_arithmetic(Recovery& r, const Node& node) {
    if (auto m = replace_weight_of_ones(r, node)) return m;
    for (size_t i = 0; i < node.in.size() && i < 2; ++i) {
        const Ref other = node.in.size() > 1 ? node.input(1 - i) : kNone;
        if (const auto* m = r.get<MeanSquare>(node.input(i))) {
            const auto number = other == kNone ? std::nullopt : r.number(other);
            if (auto next = one_operand(node, *m, number, i == 0)) return next;
            const View* x = r.get<View>(other);
            const bool fits = (node.is("Mul") && m->stage == MeanSquare::kInverse) ||
                              (node.is("Div") && m->stage == MeanSquare::kRoot && i == 1);
            if (x && fits && x->scale == 1.0 && same_source(*x, m->x))
                return Normalized{*x, m->group, m->epsilon};
            return unknown(r, node,
                           "does not continue a normalisation x / sqrt(mean(x^2) + epsilon)");
        }
    }
    for (size_t i = 0; i < node.in.size() && i < 2; ++i)
        if (const auto* n = r.get<Normalized>(node.input(i))) {
            const auto weight =
                node.in.size() > 1 ? vector_weight(r, node.input(1 - i)) : std::nullopt;
            if (!node.is("Mul") || !weight)
                return unknown(r, node, "a norm must be followed by its weight");
            const Normalized copy = *n;
            return finish_norm(r, node, copy.x, copy.group, copy.epsilon, *weight);
        }
    return std::nullopt;
}

std::vector<NamedMatcher> norm_matchers() {
    return {{"RMSNormalization", normalization},
            {"SimplifiedLayerNormalization", normalization},
            {"SkipSimplifiedLayerNormalization", skip_normalization},
            {"ReduceMean", reduce_mean}};
}

}  // namespace cleave::importer::from_onnx
