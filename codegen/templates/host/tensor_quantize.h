// SPDX-License-Identifier: Apache-2.0
// DequantizeLinear and QuantizeLinear, a slice of the axis an item: y = (x - zero_point) * scale,
// and back, rounded to even and cut off at the type's ends. Config: X, Scale, Zero and Held
// (element types), kZeroPoint, kBlocked (scales have the shape of x with the axis divided by
// `block`; else one for each slice). DynamicQuantizeLinear: one item.
#pragma once

#include "tensor_chain.h"
#include "tensor_sink.h"

namespace cleave {

template <class Config>
struct QuantizeArgs {
    const typename Config::X* x;  // [outer, axis, inner]
    const typename Config::Scale* scale;
    const typename Config::Zero* zero_point;  // as scale
    typename Config::Out* out;
    Chain<Config> chain;
    i64 axis, inner, block;

    // The first scale of a slice; its elements have their own where kBlocked.
    CLEAVE_INLINE i64 scale_of(i64 slice) const {
        i64 at = slice % axis;
        if constexpr (!Config::kBlocked) return at;
        return (slice / axis * ceil_div(axis, block) + at / block) * inner;
    }
};

template <class Config>
CLEAVE_INLINE void tensor_dequantize(const QuantizeArgs<Config>& a, i64 begin, i64 end, void*) {
    using C = Config;
    Sink<C, typename C::Held> sink(a.out, a.chain, begin * a.inner);
    for (i64 slice = begin; slice < end; ++slice) {
        i64 first = a.scale_of(slice);
        for (i64 i = 0; i < a.inner; ++i) {
            i64 scale = C::kBlocked ? first + i : first;
            auto q = read(a.x, slice * a.inner + i);
            float value;
            if constexpr (!C::kZeroPoint) {
                value = static_cast<float>(q);
            } else if constexpr (sizeof(typename C::X) == 4) {
                // Differences of 32-bit integers need 33 bits.
                value = static_cast<float>(static_cast<i64>(q) -
                                           static_cast<i64>(read(a.zero_point, scale)));
            } else {
                value = static_cast<float>(q - read(a.zero_point, scale));
            }
            store_one(sink.next(1), value * read(a.scale, scale));
        }
    }
}

// To even; NaN gives the lowest, as no integer represents it.
template <class Y>
CLEAVE_INLINE Y saturate(float x) {
    constexpr float kLow = Y(-1) < Y(0) ? -static_cast<float>(1ll << (8 * sizeof(Y) - 1)) : 0.0f;
    constexpr float kHigh = kLow + static_cast<float>(1ll << (8 * sizeof(Y))) - 1.0f;
    return static_cast<Y>(x > kLow ? (x < kHigh ? x : kHigh) : kLow);
}

template <class Config>
CLEAVE_INLINE void tensor_quantize(const QuantizeArgs<Config>& a, i64 begin, i64 end, void*) {
    using C = Config;
    Sink<C, typename C::Held> sink(a.out, a.chain, begin * a.inner);
    for (i64 slice = begin; slice < end; ++slice) {
        i64 first = a.scale_of(slice);
        for (i64 i = 0; i < a.inner; ++i) {
            i64 scale = C::kBlocked ? first + i : first;
            float value = __builtin_elementwise_roundeven(read(a.x, slice * a.inner + i) /
                                                          read(a.scale, scale));
            if constexpr (C::kZeroPoint) value += static_cast<float>(read(a.zero_point, scale));
            *sink.next(1) = saturate<typename C::Held>(value);
        }
    }
}

template <class Config>
struct DynamicQuantizeArgs {
    const float* x;  // [elements]
    u8* y;
    float* y_scale;
    u8* y_zero_point;
    i64 elements;
};

template <class Config>
CLEAVE_INLINE void tensor_dynamic_quantize(const DynamicQuantizeArgs<Config>& a, i64 begin, i64 end,
                                           void*) {
    if (begin >= end) return;
    float low = 0.0f, high = 0.0f;  // zero is always in the range
    for (i64 i = 0; i < a.elements; ++i) {
        low = a.x[i] < low ? a.x[i] : low;
        high = a.x[i] > high ? a.x[i] : high;
    }
    float scale = (high - low) / 255.0f;
    float divisor = scale > 0.0f ? scale : 1.0f;  // of nothing but zeros
    u8 zero = saturate<u8>(__builtin_elementwise_roundeven(-low / divisor));
    if (a.y_scale) *a.y_scale = scale;
    if (a.y_zero_point) *a.y_zero_point = zero;
    if (!a.y) return;
    for (i64 i = 0; i < a.elements; ++i)
        a.y[i] = saturate<u8>(__builtin_elementwise_roundeven(a.x[i] / divisor) +
                              static_cast<float>(zero));
}

}  // namespace cleave
