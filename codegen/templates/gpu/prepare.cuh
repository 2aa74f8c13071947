// SPDX-License-Identifier: Apache-2.0
// Activations as products of many tokens copy them: [of the selected rows,] [normalised,] narrowed
// to the type that the weights are staged as; where that is f16, divided by a power of two that
// brings the row into its range (f16_factor). Almost every row is within: it is written as it is,
// and again where it was not. A block takes a row. Config: kIn, kRun (neighbours that a thread
// takes; kXAlign of them may be loaded at once), kThreads, X, kXStride, kXOffset, To, kToOffset,
// kFactors, kSelect, kNorm, NormWeight, kEpsilon, kNormOffset, kSharedBytes.
#pragma once

#include "vectors.cuh"

namespace cleave {

template <class C>
struct PrepareArgs {
    const typename C::X* x = nullptr;              // [.., kXStride]
    const typename C::NormWeight* norm = nullptr;  // [kIn]
    const i32* rows = nullptr;                     // of x
    typename C::To* out =
        nullptr;  // [rows, kIn] from kToOffset on; with kFactors the rows' f32 behind
};

template <class C>
DEVICE void prepare(const PrepareArgs<C>& a) {
    constexpr int kRun = int(C::kRun), kStep = int(C::kThreads) * kRun, kIn = int(C::kIn);
    constexpr int kWarps = int(C::kThreads) / WARP, kInFlight = turns(4);
    static_assert(kWarps * (C::kFactors ? 8 : 4) <= C::kSharedBytes && kIn % kRun == 0);
    const i64 row = block_x();
    const Rows<typename C::X> in{a.x + C::kXOffset, C::kXStride, C::kSelect ? a.rows : nullptr};
    const typename C::X* from = in.row(row);
    typename C::To* to = a.out + C::kToOffset + row * kIn;
    DYNAMIC_SHARED(float, partial);  // [2, kWarps]: sums of squares, largest magnitudes
    float scale = 1.0f;
    if constexpr (C::kNorm) {
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
    // Gives the largest magnitude that the thread wrote.
    const auto write = [&](float by) {
        float largest = 0.0f;
#pragma unroll kInFlight
        for (int i = thread_x() * kRun; i < kIn; i += kStep) {
            Floats<kRun> v = load_floats<kRun, int(C::kXAlign)>(from + i);
            if constexpr (C::kNorm) {
                Floats<kRun> w = load_floats<kRun>(a.norm + i);
#pragma unroll
                for (int j = 0; j < kRun; ++j) v[j] *= scale * (w[j] + C::kNormOffset);
            }
            if constexpr (C::kFactors) {
#pragma unroll
                for (int j = 0; j < kRun; ++j) {
                    v[j] *= by;
                    largest = max(largest, abs(v[j]));
                }
            }
            write_run<kRun>(to + i, v);
        }
        return largest;
    };
    float largest = write(1.0f);
    if constexpr (C::kFactors) {
        largest = warp_max(largest);
        if (lane() == 0) partial[kWarps + warp()] = largest;
        barrier();
        for (int w = 0; w < kWarps; ++w) largest = max(largest, partial[kWarps + w]);
        const float factor = f16_factor(largest);
        if (thread_x() == 0)
            reinterpret_cast<float*>(a.out + C::kToOffset + i64(blocks_x()) * kIn)[row] = factor;
        if (factor != 1.0f) write(inverse_factor(factor));
    }
}

}  // namespace cleave
