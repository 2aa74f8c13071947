// SPDX-License-Identifier: Apache-2.0
// What both kinds of attention share: arguments, and scores in base 2.
#pragma once

#include "kv_cache.cuh"
#include "vectors.cuh"

namespace cleave {

constexpr float kLog2E = 1.4426950408889634f;
constexpr i64 kCounterBytes = 8192;

template <class C>
struct AttentionArgs {
    const typename C::X* q = nullptr;  // [num_tokens, kQStride], columns from kQOffset
    const typename C::Kv* kv = nullptr;
    i64 num_slots = 0, context = 0;
    typename C::X* out = nullptr;  // [num_tokens, kQHeads * kVHeadDim]
    const i32* positions = nullptr;
    const i32* slots = nullptr;
    float* scratch = nullptr;              // decode, kSplits > 1
    const i32* sequence_starts = nullptr;  // prefill
    i64 num_sequences = 0;
    i64 num_tokens = 0;
};

// A score in base 2, whatever the cap.
template <class C>
DEVICE float capped(float dot) {
    if constexpr (C::kSoftcap > 0.0f)
        return C::kSoftcap * kLog2E * tanh(dot * (C::kScale / C::kSoftcap));
    return dot * (C::kScale * kLog2E);
}

// 2^(a - b), where b >= a and both may be -infinity.
DEVICE float rescale(float a, float b) { return a == -kInfinity ? 0.0f : exp2(a - b); }

}  // namespace cleave
