// SPDX-License-Identifier: Apache-2.0
// Linear: MatMul with a weight, Gemm, and the Add of a bias.
#include "importer/onnx/recover/matchers.h"

namespace cleave::importer::from_onnx {

// x [.., in] times weight [in, out].
Meaning linear(Recovery& r, const Node& node, const View& x, const WeightView& weight,
               const std::optional<WeightView>& bias) {
    const TermId source = is_token_rows(x) ? r.materialize(x, node) : TermId();
    if (!source.valid())
        return unknown(r, node, "multiplies a weight with something that is not rows of features");
    if (weight.vector || weight.added != 0 || weight.rows.size() != r.term(source).features)
        return unknown(r, node,
                       fmt::format("{} features meet a weight of {} rows", r.term(source).features,
                                   weight.rows.size()));
    const int64_t out = weight.columns.size();
    if (bias && (!bias->vector || bias->added != 0 || bias->rows.size() != out))
        return unknown(r, node, fmt::format("its bias is not a vector of {}", out));
    Term t{Term::kLinear, {source}, out};
    t.weight = weight;
    t.bias = bias;
    View view = x;
    view.term = r.add_term(std::move(t), node);
    view.offset = 0;
    view.scale = 1.0;
    view.axes.back() = out == 1 ? Axis{} : Axis{{Factor::kFeature, {out, out}, 1}};
    return view;
}

TermId biased(Recovery& r, const Node& node, TermId product, const WeightView& bias) {
    Term t = r.term(product);
    if (t.kind != Term::kLinear || t.bias || !bias.vector || bias.rows.size() != t.features)
        return {};
    t.bias = bias;
    return r.add_term(std::move(t), node);
}

namespace {

WeightView flipped(WeightView w) {
    std::swap(w.rows, w.columns);
    w.transposed = !w.transposed;
    return w;
}

Meaning matmul(Recovery& r, const Node& node) {
    if (auto attention = match_attention_matmul(r, node)) return *attention;
    const View* x = r.get<View>(node.input(0));
    const WeightView* w = r.get<WeightView>(node.input(1));
    if (!x || !w)
        return unknown(r, node,
                       "multiplies two values that are neither activation and weight nor "
                       "parts of an attention");
    const View copy = *x;
    return linear(r, node, copy, *w, std::nullopt);
}

Meaning gemm(Recovery& r, const Node& node) {
    const View* x = r.get<View>(node.input(0));
    const WeightView* w = r.get<WeightView>(node.input(1));
    const WeightView* bias = r.get<WeightView>(node.input(2));
    if (!x || !w || (node.input(2) != kNone && !bias) || node.integer("transA", 0) != 0 ||
        node.real("alpha", 1) != 1 || node.real("beta", 1) != 1)
        return unknown(r, node,
                       "only alpha = beta = 1 of an activation, a weight and a bias is supported");
    const View copy = *x;
    const WeightView weight = node.integer("transB", 0) != 0 ? flipped(*w) : *w;
    return linear(r, node, copy, weight, bias ? std::optional(*bias) : std::nullopt);
}

// com.microsoft.FusedMatMul: MatMul with alpha and transposed operands (ONNX Runtime's optimiser).
Meaning fused_matmul(Recovery& r, const Node& node) {
    if (node.integer("transA", 0) == 0 && node.integer("transBatchA", 0) == 0 &&
        node.integer("transBatchB", 0) == 0)
        if (auto attention = match_attention_matmul(r, node)) return *attention;
    const View* x = r.get<View>(node.input(0));
    const WeightView* w = r.get<WeightView>(node.input(1));
    if (!x || !w || node.integer("transA", 0) != 0 || node.integer("transBatchA", 0) != 0 ||
        node.integer("transBatchB", 0) != 0)
        return unknown(r, node, "only an activation times a weight, without transA, is supported");
    // The factor stays with the product: of logits it is theirs, of scores their scale.
    const View plain = *x;
    Meaning product =
        linear(r, node, plain, node.integer("transB", 0) != 0 ? flipped(*w) : *w, std::nullopt);
    if (View* y = std::get_if<View>(&product)) y->scale *= node.real("alpha", 1);
    return product;
}

Meaning add_bias(Recovery& r, const Node& node, const View& x, const WeightView& bias) {
    const TermId source = is_token_rows(x) ? r.materialize(x, node) : TermId();
    if (!source.valid() || r.term(source).kind != Term::kLinear || r.term(source).bias)
        return unknown(r, node, "adds a constant to something other than a matrix product");
    const int64_t n = r.term(source).features;
    View out = x;
    out.term = biased(r, node, source, bias);
    out.offset = 0;
    if (!out.term.valid())
        return unknown(r, node, fmt::format("adds a constant that is not a vector of {}", n));
    return out;
}

Meaning add_residual(Recovery& r, const Node& node, const View& a, const View& b) {
    const bool rows = is_token_rows(a) && is_token_rows(b) && view_sizes(a) == view_sizes(b);
    const TermId x = rows ? r.materialize(a, node) : TermId();
    const TermId y = rows ? r.materialize(b, node) : TermId();
    if (!x.valid() || !y.valid()) return unknown(r, node, "adds values of different layout");
    View out = a;
    out.term = r.add_term(Term{Term::kAdd, {x, y}, r.term(x).features}, node);
    out.offset = 0;
    out.scale = 1.0;
    return out;
}

}  // namespace

std::optional<Meaning> match_linear_arithmetic(Recovery& r, const Node& node) {
    if (!node.is("Add")) return std::nullopt;
    for (int i : {0, 1}) {
        const View *x = r.get<View>(node.input(i)), *y = r.get<View>(node.input(1 - i));
        const WeightView* bias = r.get<WeightView>(node.input(1 - i));
        if (!x || (!y && !bias)) continue;
        const View vx = *x;
        if (bias && r.number(node.input(1 - i))) return std::nullopt;
        if (bias) return add_bias(r, node, vx, *bias);
        const View vy = *y;
        return add_residual(r, node, vx, vy);
    }
    return std::nullopt;
}

std::vector<NamedMatcher> linear_matchers() {
    return {{"MatMul", matmul}, {"Gemm", gemm}, {"FusedMatMul", fused_matmul}};
}

}  // namespace cleave::importer::from_onnx
