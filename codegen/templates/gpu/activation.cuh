// SPDX-License-Identifier: Apache-2.0
// The gates of gated MLPs. erf: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
#pragma once

#include "prelude.cuh"

namespace cleave {

enum class Activation { kSilu, kGeluTanh, kGeluErf, kRelu, kRelu2 };

DEVICE float erf(float x) {
    float magnitude = abs(x);
    float t = reciprocal(magnitude * 0.3275911f + 1.0f);
    float p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float y = 1.0f - p * t * exp(-(x * x));
    return x < 0.0f ? -y : y;
}

template <Activation kKind>
DEVICE float activate(float x) {
    if constexpr (kKind == Activation::kSilu)
        return x * sigmoid(x);
    else if constexpr (kKind == Activation::kGeluTanh)
        return x * 0.5f * (tanh((x * x * x * 0.044715f + x) * 0.7978845608028654f) + 1.0f);
    else if constexpr (kKind == Activation::kGeluErf)
        return x * 0.5f * (erf(x * 0.7071067811865476f) + 1.0f);
    else if constexpr (kKind == Activation::kRelu2)
        return max(x, 0.0f) * max(x, 0.0f);
    else
        return max(x, 0.0f);
}

}  // namespace cleave
