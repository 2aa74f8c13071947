// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "importer/onnx/probe/evaluate.h"

namespace cleave::importer::from_onnx {
namespace {

enum class Result { kSame, kReal, kInteger };  // kSame: real when an operand is

template <class F>
void unary(Evaluation& e, Result result, F f) {
    if (const Dims* s = e.shape(0)) e.set_shape(0, *s);
    const Tensor* x = e.with_data ? e.data(0) : nullptr;
    if (!x) return;
    const bool real = result == Result::kReal || (result == Result::kSame && x->real);
    Tensor out = Tensor::of(x->dims, real);
    for (int64_t i = 0; i < x->count(); ++i) {
        const double y = f(x->at(i));
        if (real)
            out.reals[i] = y;
        else
            out.integers[i] =
                std::fabs(y) < 9e18 ? static_cast<int64_t>(y) : (x->real ? 0 : x->integers[i]);
    }
    e.set_data(0, std::move(out));
}

template <class RealF, class IntegerF>
bool combine(const Tensor& a, const Tensor& b, Result result, RealF fr, IntegerF fi, Tensor& out) {
    Dims dims;
    if (!broadcast(a.dims, b.dims, dims) || product(dims) > kMostElements) return false;
    const bool real_operands = a.real || b.real;
    out = Tensor::of(dims, result == Result::kSame && real_operands);
    for_each_index(
        dims, {broadcast_strides(a.dims, dims), broadcast_strides(b.dims, dims)},
        [&](int64_t i, const Dims& at) {
            if (out.real)
                out.reals[i] = static_cast<double>(fr(a.at(at[0]), b.at(at[1])));
            else if (real_operands)
                out.integers[i] = whole(static_cast<double>(fr(a.at(at[0]), b.at(at[1]))));
            else
                out.integers[i] = static_cast<int64_t>(fi(a.integers[at[0]], b.integers[at[1]]));
        });
    return true;
}

// Any number of operands (Min and Max), usually two.
template <class RealF, class IntegerF>
void nary(Evaluation& e, Result result, RealF fr, IntegerF fi) {
    if (const Dims* first = e.shape(0)) {
        Dims dims = *first, next;
        bool ok = true;
        for (size_t i = 1; i < e.num_inputs() && ok; ++i) {
            const Dims* s = e.shape(i);
            ok = s && broadcast(dims, *s, next);
            dims = next;
        }
        if (ok) e.set_shape(0, dims);
    }
    const Tensor* first = e.with_data ? e.data(0) : nullptr;
    if (!first) return;
    Tensor sum = *first;
    for (size_t i = 1; i < e.num_inputs(); ++i) {
        Tensor next;
        const Tensor* b = e.data(i);
        if (!b || !combine(sum, *b, result, fr, fi, next)) return;
        sum = std::move(next);
    }
    e.set_data(0, std::move(sum));
}

template <class F>
void same(Evaluation& e, F f) {
    nary(e, Result::kSame, f, f);
}
template <class F>
void compare(Evaluation& e, F f) {
    nary(e, Result::kInteger, f, f);
}

int64_t divide(int64_t a, int64_t b) {
    if (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())) return 0;
    return a / b;
}

// fmod = 0: the sign of the divisor, as numpy.mod.
int64_t modulo(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    const int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// Wraps like the machine does; a hostile graph must not overflow a signed number here.
int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }

// An integer as another integer type keeps it.
int64_t narrowed(int64_t v, int64_t type) {
    using T = onnx::TensorProto;
    switch (type) {
        case T::INT8: return static_cast<int8_t>(v);
        case T::UINT8: return static_cast<uint8_t>(v);
        case T::INT16: return static_cast<int16_t>(v);
        case T::UINT16: return static_cast<uint16_t>(v);
        case T::INT32: return static_cast<int32_t>(v);
        case T::UINT32: return static_cast<uint32_t>(v);
        default: return v;
    }
}

void cast(Evaluation& e) {
    if (const Dims* s = e.shape(0)) e.set_shape(0, *s);
    const Tensor* x = e.with_data ? e.data(0) : nullptr;
    if (!x) return;
    using T = onnx::TensorProto;
    const int64_t to = e.node.integer("to", T::FLOAT);
    if (elem_type_bits(static_cast<int32_t>(to)) == 0) return;  // no number
    const std::optional<DType> dtype = dtype_of(static_cast<int32_t>(to));
    const bool real = dtype && is_floating(*dtype);
    Tensor out = Tensor::of(x->dims, real);
    for (int64_t i = 0; i < x->count(); ++i) {
        if (real) {
            out.reals[i] = x->at(i);
        } else if (to == T::BOOL) {
            out.integers[i] = x->at(i) != 0;
        } else if (!x->real) {
            out.integers[i] = narrowed(x->integers[i], to);
        } else {
            out.integers[i] = narrowed(whole(x->reals[i]), to);
        }
    }
    e.set_data(0, std::move(out));
}

void identity(Evaluation& e) {
    if (const Dims* s = e.shape(0)) e.set_shape(0, *s);
    if (const Tensor* x = e.with_data ? e.data(0) : nullptr) e.set_data(0, *x);
}

// Only ever to the floating type of an activation, whose exact type is of no account here.
void cast_like(Evaluation& e) {
    if (const Dims* s = e.shape(0)) e.set_shape(0, *s);
    const Tensor* x = e.with_data ? e.data(0) : nullptr;
    if (!x) return;
    const Tensor* like = e.data(1);  // unknown: an activation, which is real
    Tensor out = Tensor::of(x->dims, !like || like->real);
    for (int64_t i = 0; i < x->count(); ++i)
        if (out.real)
            out.reals[i] = x->at(i);
        else
            out.integers[i] = x->real ? whole(x->reals[i]) : x->integers[i];
    e.set_data(0, std::move(out));
}

// An If whose branches are in the graph (see specialize_if.cpp): (condition, then, else).
void choice(Evaluation& e) {
    const Tensor* condition = e.num_inputs() == 3 ? e.data(0) : nullptr;
    if (condition && condition->count() == 1) {
        const size_t taken = condition->at(0) != 0 ? 1 : 2;
        if (const Dims* s = e.shape(taken)) e.set_shape(0, *s);
        const Tensor* x = e.with_data ? e.data(taken) : nullptr;
        if (x) e.set_data(0, *x);
        return;
    }
    const Dims *a = e.shape(1), *b = e.shape(2);
    if (a && b && *a == *b) e.set_shape(0, *a);
}

void where(Evaluation& e) {
    const Dims *c = e.shape(0), *x = e.shape(1), *y = e.shape(2);
    Dims xy, dims;
    if (!c || !x || !y || !broadcast(*x, *y, xy) || !broadcast(*c, xy, dims)) return;
    e.set_shape(0, dims);
    if (!e.with_data || product(dims) > kMostElements) return;
    const Tensor *ct = e.data(0), *xt = e.data(1), *yt = e.data(2);
    if (!ct || !xt || !yt) return;
    Tensor out = Tensor::of(dims, xt->real || yt->real);
    for_each_index(
        dims,
        {broadcast_strides(*c, dims), broadcast_strides(*x, dims), broadcast_strides(*y, dims)},
        [&](int64_t i, const Dims& at) {
            const bool first = ct->at(at[0]) != 0;
            if (out.real)
                out.reals[i] = first ? xt->at(at[1]) : yt->at(at[2]);
            else
                out.integers[i] = first ? xt->integers[at[1]] : yt->integers[at[2]];
        });
    e.set_data(0, std::move(out));
}

void clip(Evaluation& e) {
    double low = -INFINITY, high = INFINITY;
    if (e.given(1) && e.with_data) {
        const Tensor* t = e.data(1);
        if (!t || t->count() != 1) return;
        low = t->at(0);
    }
    if (e.given(2) && e.with_data) {
        const Tensor* t = e.data(2);
        if (!t || t->count() != 1) return;
        high = t->at(0);
    }
    low = e.node.real("min", low);
    high = e.node.real("max", high);
    unary(e, Result::kSame, [&](double v) { return std::min(std::max(v, low), high); });
}

}  // namespace

std::vector<NamedRule> elementwise_rules() {
    using E = Evaluation;
    return {
        {"Add",
         [](E& e) {
             nary(
                 e, Result::kSame, [](double a, double b) { return a + b; },
                 [](uint64_t a, uint64_t b) { return wrap(a + b); });
         }},
        {"Sub",
         [](E& e) {
             nary(
                 e, Result::kSame, [](double a, double b) { return a - b; },
                 [](uint64_t a, uint64_t b) { return wrap(a - b); });
         }},
        {"Mul",
         [](E& e) {
             nary(
                 e, Result::kSame, [](double a, double b) { return a * b; },
                 [](uint64_t a, uint64_t b) { return wrap(a * b); });
         }},
        {"Div",
         [](E& e) { nary(e, Result::kSame, [](double a, double b) { return a / b; }, divide); }},
        {"Mod",
         [](E& e) {
             nary(e, Result::kSame, [](double a, double b) { return std::fmod(a, b); }, modulo);
         }},
        {"Pow",
         [](E& e) {
             same(e, [](auto a, auto b) {
                 return std::pow(static_cast<double>(a), static_cast<double>(b));
             });
         }},
        {"Min", [](E& e) { same(e, [](auto a, auto b) { return std::min(a, b); }); }},
        {"Max", [](E& e) { same(e, [](auto a, auto b) { return std::max(a, b); }); }},
        {"Equal", [](E& e) { compare(e, [](auto a, auto b) { return a == b; }); }},
        {"Less", [](E& e) { compare(e, [](auto a, auto b) { return a < b; }); }},
        {"LessOrEqual", [](E& e) { compare(e, [](auto a, auto b) { return a <= b; }); }},
        {"Greater", [](E& e) { compare(e, [](auto a, auto b) { return a > b; }); }},
        {"GreaterOrEqual", [](E& e) { compare(e, [](auto a, auto b) { return a >= b; }); }},
        {"And", [](E& e) { compare(e, [](auto a, auto b) { return a != 0 && b != 0; }); }},
        {"Or", [](E& e) { compare(e, [](auto a, auto b) { return a != 0 || b != 0; }); }},
        {"Xor", [](E& e) { compare(e, [](auto a, auto b) { return (a != 0) != (b != 0); }); }},
        {"BitwiseAnd",
         [](E& e) { compare(e, [](auto a, auto b) { return whole(a) & whole(b); }); }},
        {"BitwiseOr", [](E& e) { compare(e, [](auto a, auto b) { return whole(a) | whole(b); }); }},
        {"Not", [](E& e) { unary(e, Result::kInteger, [](double v) { return v == 0; }); }},
        {"IsNaN", [](E& e) { unary(e, Result::kInteger, [](double v) { return std::isnan(v); }); }},
        {"IsInf", [](E& e) { unary(e, Result::kInteger, [](double v) { return std::isinf(v); }); }},
        {"Neg", [](E& e) { unary(e, Result::kSame, [](double v) { return -v; }); }},
        {"Abs", [](E& e) { unary(e, Result::kSame, [](double v) { return std::fabs(v); }); }},
        {"Sign", [](E& e) { unary(e, Result::kSame, [](double v) { return (v > 0) - (v < 0); }); }},
        {"Floor", [](E& e) { unary(e, Result::kSame, [](double v) { return std::floor(v); }); }},
        {"Ceil", [](E& e) { unary(e, Result::kSame, [](double v) { return std::ceil(v); }); }},
        {"Round",
         [](E& e) { unary(e, Result::kSame, [](double v) { return std::nearbyint(v); }); }},
        {"Sqrt", [](E& e) { unary(e, Result::kReal, [](double v) { return std::sqrt(v); }); }},
        {"Reciprocal", [](E& e) { unary(e, Result::kReal, [](double v) { return 1.0 / v; }); }},
        {"Exp", [](E& e) { unary(e, Result::kReal, [](double v) { return std::exp(v); }); }},
        {"Log", [](E& e) { unary(e, Result::kReal, [](double v) { return std::log(v); }); }},
        {"Cos", [](E& e) { unary(e, Result::kReal, [](double v) { return std::cos(v); }); }},
        {"Sin", [](E& e) { unary(e, Result::kReal, [](double v) { return std::sin(v); }); }},
        {"Tanh", [](E& e) { unary(e, Result::kReal, [](double v) { return std::tanh(v); }); }},
        {"Erf", [](E& e) { unary(e, Result::kReal, [](double v) { return std::erf(v); }); }},
        {"Sigmoid",
         [](E& e) { unary(e, Result::kReal, [](double v) { return 1 / (1 + std::exp(-v)); }); }},
        {"Relu", [](E& e) { unary(e, Result::kSame, [](double v) { return v > 0 ? v : 0; }); }},
        {"Identity", identity},
        {"Cast", cast},
        {"CastLike", cast_like},
        {"Where", where},
        {"If", choice},
        {"Clip", clip},
    };
}

}  // namespace cleave::importer::from_onnx
