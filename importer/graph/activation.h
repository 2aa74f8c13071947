// SPDX-License-Identifier: Apache-2.0
// The activations of gated MLPs: one row each. The recogniser finds them by their formula, the
// reference computes it, plans and printouts name them, and kernels take them by their spelling.
// Beside the row, an activation has a formula in codegen/templates/gpu/activation.cuh, one in
// codegen/templates/host/math.h, and one in each exporter that lowers operators
// (planner/export/model/{iree,ort}).
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cleave::importer {

// Plan files hold the number: new ones go at the end.
enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu, kRelu2 };

struct ActivationRow {
    Activation activation;
    std::string_view name;      // "silu", in plans and printouts
    std::string_view spelling;  // "kSilu", in the templates
    double (*formula)(double);
};

// In the order of the enumeration.
inline constexpr std::array kActivations{
    ActivationRow{Activation::kSilu, "silu", "kSilu",
                  [](double x) { return x / (1.0 + std::exp(-x)); }},
    ActivationRow{Activation::kGeluTanh, "gelu_tanh", "kGeluTanh",
                  [](double x) {
                      const double inner = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
                      return 0.5 * x * (1.0 + std::tanh(inner));
                  }},
    ActivationRow{Activation::kGeluErf, "gelu_erf", "kGeluErf",
                  [](double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }},
    ActivationRow{Activation::kRelu, "relu", "kRelu", [](double x) { return x > 0 ? x : 0.0; }},
    ActivationRow{Activation::kRelu2, "relu2", "kRelu2",
                  [](double x) { return x > 0 ? x * x : 0.0; }},
};
inline constexpr Activation kLastActivation = kActivations.back().activation;
static_assert(static_cast<size_t>(kLastActivation) + 1 == kActivations.size());

inline const ActivationRow& row_of(Activation activation) {
    return kActivations.at(static_cast<size_t>(activation));
}
inline std::string_view activation_name(Activation activation) { return row_of(activation).name; }

}  // namespace cleave::importer
