// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "importer/onnx/probe/evaluate.h"

namespace cleave::importer::from_onnx {
namespace {

void shape_of(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s) return;
    const auto rank = static_cast<int64_t>(s->size());
    const auto clamp = [&](int64_t v) {
        return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank);
    };
    const int64_t start = clamp(e.node.integer("start", 0));
    const int64_t end = std::max(start, clamp(e.node.integer("end", rank)));
    Tensor t = Tensor::of({end - start}, false);
    std::copy(s->begin() + start, s->begin() + end, t.integers.begin());
    e.set_data(0, std::move(t));
}

void size_of(Evaluation& e) {
    const Dims* s = e.shape(0);
    if (!s) return;
    Tensor t = Tensor::of({}, false);
    t.integers[0] = product(*s);
    e.set_data(0, std::move(t));
}

void constant_of_shape(Evaluation& e) {
    std::optional<std::vector<int64_t>> dims = e.integers(0, "");
    if (!dims) return;
    for (int64_t d : *dims)
        if (d < 0 || d > kMostElements) return;
    e.set_shape(0, *dims);
    if (!e.with_data || product(*dims) > kMostElements) return;
    double value = 0;
    bool real = true;  // without an element it is 0.0
    if (e.node.element >= 0) {
        const Constant& element = e.model().constants[static_cast<size_t>(e.node.element)];
        const std::optional<Tensor> one = read_constant(e.model(), element);
        if (!one) return;
        value = one->at(0);
        real = one->real;
    }
    Tensor out = Tensor::of(*dims, real);
    if (real)
        std::fill(out.reals.begin(), out.reals.end(), value);
    else
        std::fill(out.integers.begin(), out.integers.end(), whole(value));
    e.set_data(0, std::move(out));
}

void range(Evaluation& e) {
    const Tensor *start = e.data(0), *limit = e.data(1), *delta = e.data(2);
    if (!start || !limit || !delta || !start->count() || !limit->count() || !delta->count()) return;
    if (start->real != limit->real || start->real != delta->real) return;
    const double step = delta->at(0);
    if (step == 0) return;
    const double count = std::ceil((limit->at(0) - start->at(0)) / step);
    if (!(count < static_cast<double>(kMostElements))) return;
    const auto n = static_cast<int64_t>(std::max(0.0, count));
    Tensor t = Tensor::of({n}, start->real);
    for (int64_t i = 0; i < n; ++i)
        if (t.real)
            t.reals[i] = start->reals[0] + static_cast<double>(i) * step;
        else
            t.integers[i] =
                static_cast<int64_t>(  // exact, and wraps where a hostile file overflows
                    static_cast<uint64_t>(start->integers[0]) +
                    static_cast<uint64_t>(i) * static_cast<uint64_t>(delta->integers[0]));
    e.set_data(0, std::move(t));
}

// MatMul, and com.microsoft.FusedMatMul with its transposed operands and its factor.
void matmul(Evaluation& e) {
    const Dims *a = e.shape(0), *b = e.shape(1);
    if (!a || !b || a->empty() || b->empty()) return;
    const bool turn_a = e.node.integer("transA", 0) != 0, turn_b = e.node.integer("transB", 0) != 0;
    const double alpha = e.node.real("alpha", 1.0);
    Dims x = *a, y = *b;
    if (x.size() == 1) x.insert(x.begin(), 1);
    if (y.size() == 1) y.push_back(1);
    if (turn_a) std::swap(x.back(), x[x.size() - 2]);
    if (turn_b) std::swap(y.back(), y[y.size() - 2]);
    const int64_t m = x[x.size() - 2], k = x.back(), n = y.back();
    if (k != y[y.size() - 2]) return;
    const Dims lead_x(x.begin(), x.end() - 2), lead_y(y.begin(), y.end() - 2);
    Dims lead;
    if (!broadcast(lead_x, lead_y, lead)) return;
    Dims dims = lead;
    if (a->size() > 1) dims.push_back(m);
    if (b->size() > 1) dims.push_back(n);
    e.set_shape(0, dims);
    if (!e.with_data || k > kMostElements || product(dims) > kMostElements ||
        product(dims) * k > kMostElements)
        return;
    const Tensor *xt = e.data(0), *yt = e.data(1);
    if (!xt || !yt) return;
    Tensor out = Tensor::of(dims, xt->real || yt->real);
    for_each_index(lead, {broadcast_strides(lead_x, lead), broadcast_strides(lead_y, lead)},
                   [&](int64_t i, const Dims& at) {
                       for (int64_t r = 0; r < m; ++r)
                           for (int64_t c = 0; c < n; ++c) {
                               double sum = 0;
                               for (int64_t l = 0; l < k; ++l)
                                   sum += xt->at(at[0] * m * k + (turn_a ? l * m + r : r * k + l)) *
                                          yt->at(at[1] * k * n + (turn_b ? c * k + l : l * n + c));
                               const int64_t to = (i * m + r) * n + c;
                               if (out.real)
                                   out.reals[to] = alpha * sum;
                               else
                                   out.integers[to] = whole(sum);
                           }
                   });
    e.model().probe_work.evaluated += product(dims) * k;
    e.set_data(0, std::move(out));
}

}  // namespace

std::vector<NamedRule> creation_rules() {
    return {{"Shape", shape_of}, {"Size", size_of},  {"ConstantOfShape", constant_of_shape},
            {"Range", range},    {"MatMul", matmul}, {"FusedMatMul", matmul}};
}

}  // namespace cleave::importer::from_onnx
