// SPDX-License-Identifier: Apache-2.0
// Functions of one value, known by what they give at fixed points. Sigmoid, tanh, erf, powers and
// their sums in any spelling become x^2 (a norm begins) or a row of importer/graph/activation.h.
// The numbers are compared, never the pattern.
#include <cmath>

#include "importer/onnx/recover/matchers.h"
#include "runtime/base/convert.h"

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

namespace {

double in_f16(double x) { return f16_to_f32(f32_to_f16(static_cast<float>(x))); }
double in_bf16(double x) { return bf16_to_f32(f32_to_bf16(static_cast<float>(x))); }

// GELU with constants of a narrow type.
std::optional<Activation> rounded_gelu(const Elementwise& e, double tolerance,
                                       double (*round)(double)) {
    const double cubic = round(0.044715), inner = round(std::sqrt(2 / M_PI));
    if (equals(e, tolerance, [&](double x) {
            return 0.5 * x * (1 + std::tanh(inner * (x + cubic * x * x * x)));
        }))
        return Activation::kGeluTanh;
    for (const double factor : {round(std::sqrt(0.5)), 1 / round(std::sqrt(2.0))})
        if (equals(e, tolerance, [&](double x) { return 0.5 * x * (1 + std::erf(x * factor)); }))
            return Activation::kGeluErf;
    return std::nullopt;
}

}  // namespace

std::optional<Activation> activation_of(const Elementwise& e) {
    // Exporters round constants such as sqrt(2 / pi) to the model's type, at most to float32.
    constexpr double kTolerance = 1e-5;
    for (const ActivationRow& row : kActivations)
        if (equals(e, kTolerance, row.formula)) return row.activation;
    for (const auto round : {in_f16, in_bf16})
        if (const auto gelu = rounded_gelu(e, kTolerance, round)) return gelu;
    return std::nullopt;
}

}  // namespace cleave::importer::from_onnx
