// SPDX-License-Identifier: Apache-2.0
// What a launch does with each element before it is stored: the chain of elementwise operators
// behind its own. Config's epilogue() is generated from these, one call an operator. Config:
// kEpilogue; with it kOthers, and
//     Floats<N> epilogue(Floats<N> v, const T* const* other, i64 row, i64 i)
// of features [i, i + N) of a row; `other` are the chain's further operands.
#pragma once

#include "activation.cuh"
#include "vectors.cuh"

namespace cleave {

template <int N>
DEVICE Floats<N> scaled(Floats<N> v, float factor) {
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] *= factor;
    return v;
}

template <int N>
DEVICE Floats<N> soft_capped(Floats<N> v, float cap) {
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = cap * tanh(v[j] * (1.0f / cap));
    return v;
}

template <int N>
DEVICE Floats<N> plus(Floats<N> v, const Floats<N>& w) {
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] += w[j];
    return v;
}

template <Activation kActivation, int N>
DEVICE Floats<N> gated(Floats<N> gate, const Floats<N>& up) {
#pragma unroll
    for (int j = 0; j < N; ++j) gate[j] = activate<kActivation>(gate[j]) * up[j];
    return gate;
}

template <class C, int N, class T>
DEVICE Floats<N> with_epilogue(const Floats<N>& v, const T* const* other, i64 row, i64 i) {
    if constexpr (C::kEpilogue) return C::epilogue(v, other, row, i);
    return v;
}

}  // namespace cleave
