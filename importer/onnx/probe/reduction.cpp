// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>

#include "importer/onnx/probe/evaluate.h"

namespace cleave::importer::from_onnx {
namespace {

struct Axes {
    std::vector<bool> reduced;
    Dims kept;  // with the reduced ones as 1
};

std::optional<Axes> axes_of(Evaluation& e, const Dims& s) {
    std::optional<std::vector<int64_t>> axes = e.integers(1, "axes");
    if (!axes && e.given(1)) return std::nullopt;
    if (const int64_t keep = e.node.integer("keepdims", 1); keep != 0 && keep != 1)
        return std::nullopt;
    Axes result{std::vector<bool>(s.size(), false), s};
    if (!axes || axes->empty()) {
        if (e.node.integer("noop_with_empty_axes", 0) != 0) return result;
        axes.emplace(s.size());
        std::iota(axes->begin(), axes->end(), 0);
    }
    for (int64_t axis : *axes) {
        if (axis < 0) axis += static_cast<int64_t>(s.size());
        if (axis < 0 || axis >= static_cast<int64_t>(s.size())) return std::nullopt;
        result.reduced[axis] = true;
        result.kept[axis] = 1;
    }
    return result;
}

Dims without_reduced(const Evaluation& e, const Axes& axes) {
    if (e.node.integer("keepdims", 1) != 0) return axes.kept;
    Dims dims;
    for (size_t i = 0; i < axes.kept.size(); ++i)
        if (!axes.reduced[i]) dims.push_back(axes.kept[i]);
    return dims;
}

template <class F>
void reduce(Evaluation& e, double start, F f) {
    const Dims* s = e.shape(0);
    if (!s) return;
    const std::optional<Axes> axes = axes_of(e, *s);
    if (!axes) return;
    e.set_shape(0, without_reduced(e, *axes));
    const Tensor* x = e.with_data ? e.data(0) : nullptr;
    if (!x) return;
    std::vector<double> sums(product(axes->kept), start);
    for_each_index(*s, {broadcast_strides(axes->kept, *s)},
                   [&](int64_t i, const Dims& at) { sums[at[0]] = f(sums[at[0]], x->at(i)); });
    Tensor out = Tensor::of(without_reduced(e, *axes), x->real);
    for (int64_t i = 0; i < out.count(); ++i)
        if (out.real)
            out.reals[i] = sums[i];
        else
            out.integers[i] = whole(sums[i]);
    e.set_data(0, std::move(out));
}

void mean(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s) return;
    if (const std::optional<Axes> axes = axes_of(e, *s)) e.set_shape(0, without_reduced(e, *axes));
}

void cumulative_sum(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s) return;
    e.set_shape(0, *s);
    const Tensor *x = e.with_data ? e.data(0) : nullptr, *a = e.with_data ? e.data(1) : nullptr;
    if (!x || !a || a->real || a->count() != 1) return;
    int64_t axis = a->integers[0];
    if (axis < 0) axis += static_cast<int64_t>(s->size());
    if (axis < 0 || axis >= static_cast<int64_t>(s->size())) return;
    if (e.node.integer("exclusive", 0) != 0 || e.node.integer("reverse", 0) != 0) return;
    const int64_t inner = product(Dims(s->begin() + axis + 1, s->end())), n = (*s)[axis];
    Tensor out = *x;
    for (int64_t i = 0; i < out.count(); ++i)
        if (i / inner % n > 0) {
            if (out.real)
                out.reals[i] += out.reals[i - inner];
            else
                out.integers[i] += out.integers[i - inner];
        }
    e.set_data(0, std::move(out));
}

}  // namespace

std::vector<NamedRule> reduction_rules() {
    using E = Evaluation;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {
        {"ReduceSum", [](E& e) { reduce(e, 0, [](double a, double b) { return a + b; }); }},
        {"ReduceProd", [](E& e) { reduce(e, 1, [](double a, double b) { return a * b; }); }},
        {"ReduceMax",
         [](E& e) { reduce(e, -kInfinity, [](double a, double b) { return std::max(a, b); }); }},
        {"ReduceMin",
         [](E& e) { reduce(e, kInfinity, [](double a, double b) { return std::min(a, b); }); }},
        {"ReduceMean", mean},
        {"CumSum", cumulative_sum},
    };
}

}  // namespace cleave::importer::from_onnx
