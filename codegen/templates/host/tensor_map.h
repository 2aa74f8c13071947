// SPDX-License-Identifier: Apache-2.0
// Elementwise operators over whole tensors, and those that move elements or change their type: each operand is walked
// by strides, the result is dense. An item is a row of the innermost dimension. Reals are computed as f32, integers
// and booleans as 64-bit integers. Config: kFunction, kOperands, kReal (of the last operand), X0, X1, X2 and Y
// (element types), kAlpha (Swish).
#pragma once

#include "math.h"
#include "tensor_types.h"

namespace cleave {

enum class Function {
    kIdentity,
    kTruth,
    kAdd,
    kSub,
    kMul,
    kDiv,
    kMod,
    kMin,
    kMax,
    kAnd,
    kOr,
    kNot,
    kEqual,
    kLess,
    kLessOrEqual,
    kGreater,
    kGreaterOrEqual,
    kWhere,
    kNeg,
    kAbs,
    kSqrt,
    kExp,
    kTanh,
    kSigmoid,
    kErf,
    kReciprocal,
    kRound,
    kCeil,
    kFloor,
    kRelu,
    kClip,
    kSwish
};

template <class Config>
struct TensorMapArgs {
    const typename Config::X0* x0;
    const typename Config::X1* x1;
    const typename Config::X2* x2;
    typename Config::Y* y;
    i64 dims[6];
    i64 strides0[6], offset0, strides1[6], offset1, strides2[6], offset2;
};

// Of integers, booleans among them.
template <Function kF>
CLEAVE_INLINE i64 compute_integer(i64 a, i64 b, i64 c) {
    using F = Function;
    if constexpr (kF == F::kIdentity) return a;
    if constexpr (kF == F::kTruth) return a != 0;
    if constexpr (kF == F::kAdd) return a + b;
    if constexpr (kF == F::kSub) return a - b;
    if constexpr (kF == F::kMul) return a * b;
    if constexpr (kF == F::kDiv) return b == 0 ? 0 : a / b;  // of zero: undefined in ONNX
    if constexpr (kF == F::kMod) return b == 0 ? 0 : (a % b + b) % b;
    if constexpr (kF == F::kMin) return min(a, b);
    if constexpr (kF == F::kMax) return max(a, b);
    if constexpr (kF == F::kAnd) return (a != 0) & (b != 0);
    if constexpr (kF == F::kOr) return (a != 0) | (b != 0);
    if constexpr (kF == F::kNot) return a == 0;
    if constexpr (kF == F::kEqual) return a == b;
    if constexpr (kF == F::kLess) return a < b;
    if constexpr (kF == F::kLessOrEqual) return a <= b;
    if constexpr (kF == F::kGreater) return a > b;
    if constexpr (kF == F::kGreaterOrEqual) return a >= b;
    if constexpr (kF == F::kWhere) return a != 0 ? b : c;
    if constexpr (kF == F::kNeg) return -a;
    if constexpr (kF == F::kAbs) return a < 0 ? -a : a;
    if constexpr (kF == F::kRelu) return max(a, 0);
    if constexpr (kF == F::kClip) return min(max(a, b), c);
    return 0;
}

// Of reals, N at a time; comparisons give 1 or 0.
template <Function kF, i64 N>
CLEAVE_INLINE FloatN<N> compute_real(FloatN<N> a, FloatN<N> b, FloatN<N> c, float alpha) {
    using F = Function;
    using V = FloatN<N>;
    const V one = 1.0f, zero = 0.0f;
    if constexpr (kF == F::kIdentity) return a;
    if constexpr (kF == F::kTruth) return a != zero ? one : zero;
    if constexpr (kF == F::kAdd) return a + b;
    if constexpr (kF == F::kSub) return a - b;
    if constexpr (kF == F::kMul) return a * b;
    if constexpr (kF == F::kDiv) return a / b;
    if constexpr (kF == F::kMin) return a != a ? a : b < a ? b : b != b ? b : a;
    if constexpr (kF == F::kMax) return a != a ? a : b > a ? b : b != b ? b : a;
    if constexpr (kF == F::kEqual) return a == b ? one : zero;
    if constexpr (kF == F::kLess) return a < b ? one : zero;
    if constexpr (kF == F::kLessOrEqual) return a <= b ? one : zero;
    if constexpr (kF == F::kGreater) return a > b ? one : zero;
    if constexpr (kF == F::kGreaterOrEqual) return a >= b ? one : zero;
    if constexpr (kF == F::kWhere) return a != zero ? b : c;
    if constexpr (kF == F::kNeg) return -a;
    if constexpr (kF == F::kAbs) return __builtin_elementwise_abs(a);
    if constexpr (kF == F::kSqrt) return __builtin_elementwise_sqrt(a);
    if constexpr (kF == F::kExp) return exp<N>(a);
    if constexpr (kF == F::kTanh) return tanh<N>(a);
    if constexpr (kF == F::kSigmoid) return one / (exp<N>(-a) + one);
    if constexpr (kF == F::kErf) return erf<N>(a);
    if constexpr (kF == F::kReciprocal) return one / a;
    if constexpr (kF == F::kRound) return __builtin_elementwise_roundeven(a);
    if constexpr (kF == F::kCeil) return __builtin_elementwise_ceil(a);
    if constexpr (kF == F::kFloor) return __builtin_elementwise_floor(a);
    if constexpr (kF == F::kRelu) return a < zero ? zero : a;
    if constexpr (kF == F::kClip) return a < b ? b : a > c ? c : a;
    if constexpr (kF == F::kSwish) return a / (exp<N>(a * -alpha) + one);
    return zero;
}

// N elements from p on, `stride` apart, as f32.
template <i64 N, class T>
CLEAVE_INLINE FloatN<N> gather(const T* p, i64 stride) {
    FloatN<N> v;
    for (i64 i = 0; i < N; ++i) v[i] = static_cast<float>(read(p, i * stride));
    return v;
}

template <class Config, i64 N>
CLEAVE_INLINE void map_reals(const typename Config::X0* x0, const typename Config::X1* x1,
                             const typename Config::X2* x2, typename Config::Y* y, i64 s0, i64 s1,
                             i64 s2) {
    using C = Config;
    FloatN<N> a = gather<N>(x0, s0), b = 0.0f, c = 0.0f;
    if constexpr (C::kOperands > 1) b = gather<N>(x1, s1);
    if constexpr (C::kOperands > 2) c = gather<N>(x2, s2);
    FloatN<N> result;
    if constexpr (C::kOperands > 2 &&
                  (C::kFunction == Function::kMin || C::kFunction == Function::kMax))
        result = compute_real<C::kFunction, N>(compute_real<C::kFunction, N>(a, b, c, C::kAlpha), c,
                                               c, C::kAlpha);
    else
        result = compute_real<C::kFunction, N>(a, b, c, C::kAlpha);
    for (i64 i = 0; i < N; ++i) write(y + i, result[i]);
}

template <class Config>
CLEAVE_INLINE void tensor_map(const TensorMapArgs<Config>& a, i64 begin, i64 end, void*) {
    using C = Config;
    const i64 width = a.dims[5], s0 = a.strides0[5], s1 = a.strides1[5], s2 = a.strides2[5];
    for (i64 row = begin; row < end; ++row) {
        i64 index = row, at0 = a.offset0, at1 = a.offset1, at2 = a.offset2;
        for (i64 d = 4; d >= 0; --d) {
            i64 i = index % a.dims[d];
            at0 += i * a.strides0[d];
            at1 += i * a.strides1[d];
            at2 += i * a.strides2[d];
            index /= a.dims[d];
        }
        auto* y = a.y + row * width;
        i64 i = 0;
        if constexpr (C::kReal) {
            for (; i + kLanes <= width; i += kLanes)
                map_reals<C, kLanes>(a.x0 + at0 + i * s0, a.x1 + at1 + i * s1, a.x2 + at2 + i * s2,
                                     y + i, s0, s1, s2);
            // One at a time: a pair of the same element.
            for (; i < width; ++i) {
                typename C::Y pair[2];
                map_reals<C, 2>(a.x0 + at0 + i * s0, a.x1 + at1 + i * s1, a.x2 + at2 + i * s2, pair,
                                0, 0, 0);
                y[i] = pair[0];
            }
        } else {
            for (; i < width; ++i) {
                i64 p = static_cast<i64>(read(a.x0, at0 + i * s0)), q = 0, r = 0;
                if constexpr (C::kOperands > 1) q = static_cast<i64>(read(a.x1, at1 + i * s1));
                if constexpr (C::kOperands > 2) r = static_cast<i64>(read(a.x2, at2 + i * s2));
                i64 result = compute_integer<C::kFunction>(p, q, r);
                if constexpr (C::kOperands > 2 &&
                              (C::kFunction == Function::kMin || C::kFunction == Function::kMax))
                    result = compute_integer<C::kFunction>(result, r, r);
                write(y + i, result);
            }
        }
    }
}

}  // namespace cleave
