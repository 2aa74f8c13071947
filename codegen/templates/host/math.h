// SPDX-License-Identifier: Apache-2.0
// exp, tanh, erf and the gated activations, on vectors. In f32: within 2 units in the last place
// for exp and tanh, 3e-7 absolute for erf. NaN gives NaN; exp overflows to infinity and underflows
// gradually to zero.
#pragma once

#include "prelude.h"

namespace cleave {

// Range reduction and polynomial of Cephes' expf: x = n ln 2 + r, |r| <= ln 2 / 2.
template <i64 N>
CLEAVE_INLINE FloatN<N> exp(FloatN<N> x) {
    x = x < FloatN<N>(-104.0f) ? FloatN<N>(-104.0f) : x;
    x = x > FloatN<N>(89.0f) ? FloatN<N>(89.0f) : x;
    FloatN<N> n = __builtin_elementwise_roundeven(x * 1.44269504088896341f);
    FloatN<N> r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    FloatN<N> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    FloatN<N> y = p * (r * r) + r + 1.0f;
    // 2^n in two factors: n may exceed what one exponent field holds. A NaN must not reach the
    // conversion.
    IntN<N> whole = __builtin_convertvector(x == x ? n : FloatN<N>(0.0f), IntN<N>);
    IntN<N> half = whole >> 1;
    FloatN<N> first = __builtin_bit_cast(FloatN<N>, (half + 127) << 23);
    FloatN<N> second = __builtin_bit_cast(FloatN<N>, (whole - half + 127) << 23);
    return y * first * second;
}

// Cephes' tanhf: a polynomial near zero, exponentials elsewhere.
template <i64 N>
CLEAVE_INLINE FloatN<N> tanh(FloatN<N> x) {
    FloatN<N> magnitude = __builtin_elementwise_abs(x);
    FloatN<N> z = x * x;
    FloatN<N> p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    FloatN<N> near = p * z * x + x;
    FloatN<N> far = 1.0f - 2.0f / (exp<N>(magnitude * 2.0f) + 1.0f);
    far = x < FloatN<N>(0.0f) ? -far : far;
    return magnitude < FloatN<N>(0.625f) ? near : far;
}

// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
template <i64 N>
CLEAVE_INLINE FloatN<N> erf(FloatN<N> x) {
    FloatN<N> magnitude = __builtin_elementwise_abs(x);
    FloatN<N> t = 1.0f / (magnitude * 0.3275911f + 1.0f);
    FloatN<N> p = t * 1.061405429f - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    FloatN<N> y = 1.0f - p * t * exp<N>(-(x * x));
    return x < FloatN<N>(0.0f) ? -y : y;
}

template <class Config>
CLEAVE_INLINE float softcapped(float x) {
    return tanh<1>(FloatN<1>(x / Config::kSoftcap))[0] * Config::kSoftcap;
}

enum class Activation { kSilu, kGeluTanh, kGeluErf, kRelu, kRelu2 };

template <Activation kKind, i64 N>
CLEAVE_INLINE FloatN<N> activate(FloatN<N> x) {
    if constexpr (kKind == Activation::kSilu) {
        return x / (exp<N>(-x) + 1.0f);
    } else if constexpr (kKind == Activation::kGeluTanh) {
        FloatN<N> inner = (x * x * x * 0.044715f + x) * 0.7978845608028654f;
        return x * 0.5f * (tanh<N>(inner) + 1.0f);
    } else if constexpr (kKind == Activation::kGeluErf) {
        return x * 0.5f * (erf<N>(x * 0.7071067811865476f) + 1.0f);
    } else {
        const FloatN<N> positive = x < FloatN<N>(0.0f) ? FloatN<N>(0.0f) : x;
        if constexpr (kKind == Activation::kRelu2) return positive * positive;
        return positive;
    }
}

// out[i] = act(gate[i]) * up[i]; `out` may be one of the inputs.
template <Activation kKind>
CLEAVE_INLINE void gated_activation_row(const float* gate, const float* up, float* out, i64 n) {
    i64 i = 0;
    for (; i + kLanes <= n; i += kLanes)
        store(out + i, activate<kKind, kLanes>(load(gate + i)) * load(up + i));
    for (; i < n; ++i) {
        FloatN<2> g = {gate[i], gate[i]};
        out[i] = activate<kKind, 2>(g)[0] * up[i];
    }
}

}  // namespace cleave
