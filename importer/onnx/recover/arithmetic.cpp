// SPDX-License-Identifier: Apache-2.0
// Add, Mul and their like take part in every pattern; here each pattern is asked in turn. What is
// left is arithmetic on one activation, and gate(x) * up.
#include <cmath>

#include "importer/onnx/recover/matchers.h"

namespace cleave::importer::from_onnx {
namespace {

using Function = double (*)(double);

Function unary_function(const Node& node) {
    struct Named {
        std::string_view op;
        Function f;
    };
    static const Named kFunctions[] = {
        {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
        {"Tanh", [](double x) { return std::tanh(x); }},
        {"Erf", [](double x) { return std::erf(x); }},
        {"Exp", [](double x) { return std::exp(x); }},
        {"Neg", [](double x) { return -x; }},
        {"Reciprocal", [](double x) { return 1 / x; }},
        {"Relu", [](double x) { return x > 0 ? x : 0; }},
        {"Abs", [](double x) { return std::fabs(x); }},
        {"Softplus", [](double x) { return std::log1p(std::exp(x)); }},
        {"FastGelu", row_of(Activation::kGeluTanh).formula},
    };
    for (const Named& n : kFunctions)
        if (node.op == n.op) return n.f;
    return nullptr;
}

std::optional<double> binary(const Node& node, double a, double b) {
    if (node.is("Add")) return a + b;
    if (node.is("Sub")) return a - b;
    if (node.is("Mul")) return a * b;
    if (node.is("Div")) return a / b;
    if (node.is("Pow")) return std::pow(a, b);
    return std::nullopt;
}

// relu(x)^2 is relu(x) * x: an MLP whose gate and up projection are one (Arcee). Other functions
// stay what they are.
Meaning with_squared_relu(Recovery& r, const Node& node, const Elementwise& e) {
    if (!is_squared_relu(e) || !is_token_rows(e.x)) return e;
    const TermId x = r.materialize(e.x, node);
    if (!x.valid()) return e;
    Term t{Term::kGated, {x, x}, r.term(x).features};
    t.activation = Activation::kRelu;
    View out = e.x;
    out.term = r.add_term(std::move(t), node);
    out.offset = 0;
    return out;
}

// x * c, x / c and -x stay views; everything else becomes a function of x.
std::optional<Meaning> with_number(Recovery& r, const Node& node, int i, double number) {
    if (const View* v = r.get<View>(node.input(i))) {
        View scaled = *v;
        if (node.is("Mul") || (node.is("Div") && i == 0)) {
            scaled.scale *= node.is("Mul") ? number : 1 / number;
            if (r.term(scaled.term).kind ==
                Term::kEmbedding) {  // Gemma; the norms that follow see it
                const TermId term = r.materialize(scaled, node);
                if (term.valid()) {
                    scaled.term = term;
                    scaled.scale = 1.0;
                }
            }
            return scaled;
        }
    }
    auto e = as_elementwise(r, node.input(i));
    if (!e) return std::nullopt;
    for (double& s : e->samples) {
        const auto y = i == 0 ? binary(node, s, number) : binary(node, number, s);
        if (!y) return std::nullopt;
        s = *y;
    }
    return with_squared_relu(r, node, *e);
}

bool same_source(const View& a, const View& b) {
    return a.term == b.term && a.offset == b.offset && a.axes == b.axes;
}

Meaning elementwise(Recovery& r, const Node& node) {
    if (const Function f = unary_function(node)) {
        const View* v = r.get<View>(node.input(0));
        if (node.is("Neg") && v) {
            View negated = *v;
            negated.scale = -negated.scale;
            return negated;
        }
        if (auto e = as_elementwise(r, node.input(0))) {
            for (double& s : e->samples) s = f(s);
            return *e;
        }
    }
    for (Ref in : node.in)
        if (in != kNone && r.is_known(in) && !r.data(in))
            return unknown(r, node,
                           fmt::format("its operand '{}' cannot be evaluated{}",
                                       r.model.values[in].name, r.blocked_by(in)));
    return unknown(r, node, "is not part of a pattern of the Llama family");
}

Meaning arithmetic(Recovery& r, const Node& node) {
    if (auto m = match_norm_arithmetic(r, node)) return *m;
    if (auto m = match_score_arithmetic(r, node)) return *m;
    if (auto m = match_rope_arithmetic(r, node)) return *m;
    if (auto m = match_integer_arithmetic(r, node)) return *m;
    for (int i : {0, 1})
        if (node.in.size() == 2 && r.is_known(node.input(1 - i)))
            if (const auto number = r.number(node.input(1 - i)))
                if (auto m = with_number(r, node, i, *number)) return *m;
    if (auto m = match_position_scale(r, node)) return *m;
    if (auto m = match_gated_arithmetic(r, node)) return *m;
    if (auto m = match_linear_arithmetic(r, node)) return *m;
    return elementwise(r, node);
}

// Operators that are an activation function by themselves.
Meaning activation(Recovery& r, const Node& node) {
    auto e = as_elementwise(r, node.input(0));
    if (!e || node.in.size() > 1) return unknown(r, node, "is not applied to one activation");
    const bool tanh_form = node.text("approximate", "none") == "tanh";
    const double alpha = node.real("alpha", node.is_contrib("QuickGelu") ? 1.702 : 1.0);
    for (double& x : e->samples) {
        if (node.op == "Gelu")
            x = row_of(tanh_form ? Activation::kGeluTanh : Activation::kGeluErf).formula(x);
        else
            x = x / (1 + std::exp(-alpha * x));  // QuickGelu, Swish
    }
    return *e;
}

// A function of one value that may be a gate. A squared ReLU became an MLP without a gate as soon
// as it was read (with_squared_relu): here it is that function again, and `nodes` are those it is
// from.
std::optional<Elementwise> as_gate(const Recovery& r, Ref value, std::vector<int>& nodes) {
    const View* v = r.get<View>(value);
    if (!v) return as_elementwise(r, value);
    const Term& t = r.term(v->term);
    if (t.kind != Term::kGated || t.activation != Activation::kRelu || t.in[0] != t.in[1])
        return std::nullopt;
    Elementwise gate{*v, sample_points()};
    for (double& s : gate.samples) s = row_of(Activation::kRelu2).formula(s) * v->scale;
    gate.x.term = t.in[0];
    gate.x.scale = 1.0;
    nodes = t.nodes;
    return gate;
}

}  // namespace

// activation(gate) * up; both factors of one x: a larger function of x.
std::optional<Meaning> match_gated_arithmetic(Recovery& r, const Node& node) {
    if (node.in.size() != 2) return std::nullopt;
    const auto a = as_elementwise(r, node.input(0)), b = as_elementwise(r, node.input(1));
    if (!a || !b) return std::nullopt;
    if (same_source(a->x, b->x)) {
        // x + x is no residual that a Llama has; x * x and the like are functions of x.
        Elementwise out = *a;
        for (size_t i = 0; i < out.samples.size(); ++i) {
            const auto y = binary(node, a->samples[i], b->samples[i]);
            if (!y) return std::nullopt;
            out.samples[i] = *y;
        }
        return with_squared_relu(r, node, out);
    }
    if (!node.is("Mul")) return std::nullopt;
    for (int i : {0, 1}) {
        std::vector<int> nodes;
        const auto gate = as_gate(r, node.input(i), nodes);
        const View* plain = r.get<View>(node.input(1 - i));
        const auto activation = gate ? activation_of(*gate) : std::nullopt;
        if (!activation || !plain || !is_token_rows(gate->x) || !is_token_rows(*plain) ||
            view_sizes(gate->x) != view_sizes(*plain))
            continue;
        const View up = *plain;
        const TermId g = r.materialize(gate->x, node), u = r.materialize(up, node);
        if (!g.valid() || !u.valid()) continue;
        Term t{Term::kGated, {g, u}, r.term(g).features, std::move(nodes)};
        t.activation = *activation;
        View out = gate->x;
        out.term = r.add_term(std::move(t), node);
        out.offset = 0;
        return out;
    }
    return unknown(r, node,
                   "multiplies two activations, but neither is SiLU, GELU or ReLU of a gate");
}

std::vector<NamedMatcher> arithmetic_matchers() {
    std::vector<NamedMatcher> table;
    for (std::string_view op :
         {"Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Neg", "Tanh", "Sigmoid", "Erf",
          "Exp", "Where", "Relu", "Abs", "Softplus", "FastGelu"})
        table.push_back({op, arithmetic});
    for (std::string_view op : {"Gelu", "QuickGelu", "Swish"}) table.push_back({op, activation});
    return table;
}

}  // namespace cleave::importer::from_onnx
