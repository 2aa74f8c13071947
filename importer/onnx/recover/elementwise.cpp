// SPDX-License-Identifier: Apache-2.0
// Functions of one activation, known by what they give at fixed points. Sigmoid, tanh, erf, powers
// and their sums in any spelling become x^2 (a norm begins), SiLU or GELU by comparison, not by
// pattern.
#include <cmath>

#include "importer/onnx/recover/recovery.h"

namespace cleave::importer::from_onnx {

const std::vector<double>& sample_points() {
    static const std::vector<double> kPoints{-7.0, -4.5, -3.0, -2.0, -1.5, -1.0, -0.7, -0.3, -0.1,
                                             0.05, 0.2,  0.4,  0.8,  1.2,  1.7,  2.5,  3.5,  6.0};
    return kPoints;
}

std::optional<Elementwise> as_elementwise(const Recovery& r, Ref value) {
    if (const auto* e = r.get<Elementwise>(value)) return *e;
    const View* v = r.get<View>(value);
    if (!v) return std::nullopt;
    Elementwise e{*v, sample_points()};
    for (double& s : e.samples) s *= v->scale;
    e.x.scale = 1.0;
    return e;
}

namespace {

template <class F>
bool equals(const Elementwise& e, double tolerance, F f) {
    for (size_t i = 0; i < e.samples.size(); ++i) {
        const double expected = f(sample_points()[i]);
        if (!(std::fabs(e.samples[i] - expected) <= tolerance * (1 + std::fabs(expected))))
            return false;
    }
    return true;
}

}  // namespace

bool is_square(const Elementwise& e) {
    return equals(e, 1e-12, [](double x) { return x * x; });
}

bool is_squared_relu(const Elementwise& e) {
    return equals(e, 1e-12, [](double x) { return x > 0 ? x * x : 0; });
}

std::optional<Activation> activation_of(const Elementwise& e) {
    // Exporters round constants such as sqrt(2 / pi) to float32 or float16.
    constexpr double kTolerance = 1e-5;
    const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
    const auto gelu_tanh = [](double x) {
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    };
    const auto gelu_erf = [](double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); };
    if (equals(e, kTolerance, silu)) return Activation::kSilu;
    if (equals(e, kTolerance, gelu_tanh)) return Activation::kGeluTanh;
    if (equals(e, kTolerance, gelu_erf)) return Activation::kGeluErf;
    if (equals(e, kTolerance, [](double x) { return x > 0 ? x : 0; })) return Activation::kRelu;
    return std::nullopt;
}

}  // namespace cleave::importer::from_onnx
