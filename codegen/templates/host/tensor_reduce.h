// SPDX-License-Identifier: Apache-2.0
// Reductions of whole tensors, an element of the result an item, and Softmax, a run along the axis
// an item. Config: X (element type of the operand), Held (of the result), kReduction.
#pragma once

#include "math.h"
#include "tensor_chain.h"
#include "tensor_sink.h"

namespace cleave {

enum class Reduction { kMean, kSum, kMax, kMin };

template <class Config>
struct TensorReduceArgs {
    const typename Config::X* x;
    typename Config::Out* out;
    Chain<Config> chain;
    i64 dims[6], strides[6];              // that are kept
    i64 inner_dims[6], inner_strides[6];  // that are reduced
};

// The place of element `index` of a tensor of these dimensions.
CLEAVE_INLINE i64 place_of(i64 index, const i64* dims, const i64* strides) {
    i64 place = 0;
    for (i64 d = 5; d >= 0 && index > 0; --d) {
        place += index % dims[d] * strides[d];
        index /= dims[d];
    }
    return place;
}

template <class Config>
CLEAVE_INLINE void tensor_reduce(const TensorReduceArgs<Config>& a, i64 begin, i64 end, void*) {
    constexpr Reduction kKind = Config::kReduction;
    i64 count = 1;
    for (i64 d : a.inner_dims) count *= d;
    Sink<Config, typename Config::Held> sink(a.out, a.chain, begin);
    for (i64 item = begin; item < end; ++item) {
        const auto* x = a.x + place_of(item, a.dims, a.strides);
        double total = 0.0;
        float best = load_one(x);
        for (i64 i = 0; i < count; ++i) {
            float value = load_one(x + place_of(i, a.inner_dims, a.inner_strides));
            total += static_cast<double>(value);
            if constexpr (kKind == Reduction::kMax)
                best = value > best || value != value ? value : best;
            if constexpr (kKind == Reduction::kMin)
                best = value < best || value != value ? value : best;
        }
        if constexpr (kKind == Reduction::kMean) total /= static_cast<double>(count);
        if constexpr (kKind == Reduction::kMean || kKind == Reduction::kSum)
            best = static_cast<float>(total);
        store_one(sink.next(1), best);
    }
}

template <class Config>
struct TensorSoftmaxArgs {
    const typename Config::X* x;  // [outer, axis, inner]
    typename Config::Out* out;
    Chain<Config> chain;  // none where inner > 1: elements are not made in order
    i64 axis, inner;
};

template <class Config>
CLEAVE_INLINE void tensor_softmax(const TensorSoftmaxArgs<Config>& a, i64 begin, i64 end, void*) {
    Sink<Config, typename Config::Held> sink(a.out, a.chain, begin * a.axis);
    for (i64 item = begin; item < end; ++item) {
        i64 first = item / a.inner * a.axis * a.inner + item % a.inner;
        const auto* x = a.x + first;
        float top = load_one(x);
        for (i64 i = 1; i < a.axis; ++i) {
            float value = load_one(x + i * a.inner);
            top = value > top ? value : top;
        }
        float total = 0.0f;
        for (i64 i = 0; i < a.axis; ++i)
            total += exp<2>(FloatN<2>(load_one(x + i * a.inner) - top))[0];
        for (i64 i = 0; i < a.axis; ++i) {
            float value = exp<2>(FloatN<2>(load_one(x + i * a.inner) - top))[0] / total;
            if constexpr (Config::kEpilogue)
                store_one(sink.next(1), value);
            else
                store_one(a.out + first + i * a.inner, value);
        }
    }
}

}  // namespace cleave
