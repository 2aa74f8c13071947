// SPDX-License-Identifier: Apache-2.0
// Activations as products of many tokens copy them: [of the selected rows,] [normalised,] narrowed to the type that the
// weights are staged as. A block takes a row.
// Config: kIn, kRun (neighbours that a thread takes, of which kXAlign may be loaded at once), kThreads, X, kXStride,
// kXOffset, To, kToOffset, kSelect, kNorm, NormWeight, kEpsilon, kNormOffset, kSharedBytes.
#pragma once

#include "vectors.cuh"

namespace cleave {

template <class C>
struct PrepareArgs {
    const typename C::X* x = nullptr;              // [.., kXStride]
    const typename C::NormWeight* norm = nullptr;  // [kIn]
    const i32* rows = nullptr;                     // of x
    typename C::To* out = nullptr;                 // [rows, kIn] from kToOffset on
};

template <class C>
DEVICE void prepare(const PrepareArgs<C>& a) {
    constexpr int kRun = int(C::kRun), kStep = int(C::kThreads) * kRun, kIn = int(C::kIn);
    constexpr int kWarps = int(C::kThreads) / WARP, kInFlight = turns(4);
    static_assert(kWarps * 4 <= C::kSharedBytes && kIn % kRun == 0);
    const i64 row = block_x();
    const Rows<typename C::X> in{a.x + C::kXOffset, C::kXStride, C::kSelect ? a.rows : nullptr};
    const typename C::X* from = in.row(row);
    typename C::To* to = a.out + C::kToOffset + row * kIn;
    float scale = 1.0f;
    if constexpr (C::kNorm) {
        DYNAMIC_SHARED(float, partial);  // [kWarps]
        float sum = 0.0f;
#pragma unroll kInFlight
        for (int i = thread_x() * kRun; i < kIn; i += kStep) {
            Floats<kRun> v = load_floats<kRun, int(C::kXAlign)>(from + i);
#pragma unroll
            for (int j = 0; j < kRun; ++j) sum = fma(v[j], v[j], sum);
        }
        sum = warp_sum(sum);
        if (lane() == 0) partial[warp()] = sum;
        barrier();
        sum = 0.0f;
        for (int w = 0; w < kWarps; ++w) sum += partial[w];
        scale = rsqrt(sum * (1.0f / float(kIn)) + C::kEpsilon);
    }
#pragma unroll kInFlight
    for (int i = thread_x() * kRun; i < kIn; i += kStep) {
        Floats<kRun> v = load_floats<kRun, int(C::kXAlign)>(from + i);
        if constexpr (C::kNorm) {
            Floats<kRun> w = load_floats<kRun>(a.norm + i);
#pragma unroll
            for (int j = 0; j < kRun; ++j) v[j] *= scale * (w[j] + C::kNormOffset);
        }
        write_run<kRun>(to + i, v);
    }
}

}  // namespace cleave
