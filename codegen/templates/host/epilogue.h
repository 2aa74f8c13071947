// SPDX-License-Identifier: Apache-2.0
// What a launch does with each element it has made: the chain of elementwise operators behind its
// own. Config's epilogue() is generated from these, one call an operator. Config: kEpilogue; with
// it kOthers, and
//     FloatN<N> epilogue(FloatN<N> v, const float* const* other, i64 row, i64 i)
// of features [i, i + N) of a row; `other` are the chain's further operands.
#pragma once

#include "math.h"

namespace cleave {

template <i64 N>
CLEAVE_INLINE FloatN<N> scaled(FloatN<N> v, float factor) {
    return v * factor;
}

template <i64 N>
CLEAVE_INLINE FloatN<N> soft_capped(FloatN<N> v, float cap) {
    return tanh<N>(v / cap) * cap;
}

template <i64 N>
CLEAVE_INLINE FloatN<N> plus(FloatN<N> v, FloatN<N> w) {
    return v + w;
}

template <Activation kActivation, i64 N>
CLEAVE_INLINE FloatN<N> gated(FloatN<N> gate, FloatN<N> up) {
    return activate<kActivation, N>(gate) * up;
}

// Features [first, first + n) of a row, at `values`.
template <class Config>
CLEAVE_INLINE void apply_epilogue(float* values, const float* const* other, i64 row, i64 first,
                                  i64 n) {
    if constexpr (Config::kEpilogue) {
        i64 i = 0;
        for (; i + kLanes <= n; i += kLanes)
            store(values + i,
                  Config::template epilogue<kLanes>(load(values + i), other, row, first + i));
        for (; i < n; ++i)
            values[i] =
                Config::template epilogue<1>(FloatN<1>(values[i]), other, row, first + i)[0];
    }
}

}  // namespace cleave
