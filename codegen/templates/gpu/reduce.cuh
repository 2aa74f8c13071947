// SPDX-License-Identifier: Apache-2.0
// What runs between the steps of a plan: the sum of partial values with residual and norm (the
// epilogue of an all-reduce), the largest logit, and copies between types. A block takes one row
// (block_x), all its features.
#pragma once

#include "vectors.cuh"

namespace cleave {

// kSources partial values [rows, kOut], added in f32 in their order, so that every member of a
// group gets the same bits; then the residual, then what RmsNorm makes of it. Config: kOut, kRun,
// kThreads, kSources, X, kResidual, kNorm, NormWeight, kEpsilon, kNormOffset, kSharedBytes.
template <class C>
struct AllReduceArgs {
    const typename C::X* source[C::kSources];
    const typename C::X* residual = nullptr;
    typename C::X* out = nullptr;
    const typename C::NormWeight* norm = nullptr;  // [kOut]
    typename C::X* normed = nullptr;               // [rows, kOut]
};

template <class C>
DEVICE void all_reduce(const AllReduceArgs<C>& a) {
    constexpr int kRun = int(C::kRun), kWarps = int(C::kThreads) / WARP;
    constexpr int kTurns = int(ceil_div<i64>(C::kOut, C::kThreads * C::kRun));
    static_assert(kWarps * 4 <= C::kSharedBytes);
    DYNAMIC_SHARED(float, partial);  // [kWarps]
    i64 row = i64(block_x()) * C::kOut;
    Floats<kRun> sum[kTurns];
    float squares = 0.0f;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
        i64 i = (i64(turn) * C::kThreads + thread_x()) * C::kRun;
        if (i >= C::kOut) continue;
        sum[turn] = load_floats<kRun>(a.source[0] + row + i);
#pragma unroll
        for (int s = 1; s < int(C::kSources); ++s) {
            Floats<kRun> v = load_floats<kRun>(a.source[s] + row + i);
#pragma unroll
            for (int j = 0; j < kRun; ++j) sum[turn][j] += v[j];
        }
        if constexpr (C::kResidual) {
            Floats<kRun> v = load_floats<kRun>(a.residual + row + i);
#pragma unroll
            for (int j = 0; j < kRun; ++j) sum[turn][j] += v[j];
        }
        write_run<kRun>(a.out + row + i, sum[turn]);
#pragma unroll
        for (int j = 0; j < kRun; ++j) squares = fma(sum[turn][j], sum[turn][j], squares);
    }
    if constexpr (C::kNorm) {
        squares = warp_sum(squares);
        if (lane() == 0) partial[warp()] = squares;
        barrier();
        squares = 0.0f;
        for (int w = 0; w < kWarps; ++w) squares += partial[w];
        float scale = rsqrt(squares * (1.0f / float(C::kOut)) + C::kEpsilon);
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
            i64 i = (i64(turn) * C::kThreads + thread_x()) * C::kRun;
            if (i >= C::kOut) continue;
            Floats<kRun> w = load_floats<kRun>(a.norm + i);
#pragma unroll
            for (int j = 0; j < kRun; ++j) sum[turn][j] *= scale * (w[j] + C::kNormOffset);
            write_run<kRun>(a.normed + row + i, sum[turn]);
        }
    }
}

// The place of the largest of kOut logits of a row, the first among equals; -1 where one is NaN.
// Every thread has several loads under way: a single block reads a vocabulary of 128k, and nothing
// else runs meanwhile. Config: kOut, kRun, kThreads, kSharedBytes.
template <class C>
DEVICE void argmax(const float* logits, i32* tokens) {
    constexpr int kRun = int(C::kRun), kWarps = int(C::kThreads) / WARP, kInFlight = turns(4);
    static_assert(kWarps * 8 <= C::kSharedBytes);
    DYNAMIC_SHARED(float, best_of_warps);  // [kWarps], then as many places
    auto* places = reinterpret_cast<i32*>(best_of_warps + kWarps);
    const float* row = logits + i64(block_x()) * C::kOut;
    float best = -kInfinity;
    i32 place = i32(C::kOut);
    // A NaN counts as infinity at place -1: nothing is larger or before it.
    auto take = [&](float v, i32 i) {
        if (v > best || (v == best && i < place)) {
            best = v;
            place = i;
        }
    };
    auto read = [&](float v, i32 i) {
        const bool is_nan = !(v == v);
        take(is_nan ? kInfinity : v, is_nan ? -1 : i);
    };
    constexpr i32 kStep = i32(C::kThreads) * kRun;
    for (i32 first = thread_x() * kRun; first < i32(C::kOut); first += kStep * kInFlight) {
        // Behind the end the first ones once more, which changes nothing.
        const auto start = [&](int n) {
            return first + n * kStep < i32(C::kOut) ? first + n * kStep : first;
        };
        Floats<kRun> v[kInFlight];
#pragma unroll
        for (int n = 0; n < kInFlight; ++n) v[n] = load_floats<kRun>(row + start(n));
#pragma unroll
        for (int n = 0; n < kInFlight; ++n)
#pragma unroll
            for (int j = 0; j < kRun; ++j) read(v[n][j], start(n) + j);
    }
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        float v = shuffle_xor(best, step);
        i32 i = shuffle_xor(place, step);
        take(v, i);
    }
    if (lane() == 0) {
        best_of_warps[warp()] = best;
        places[warp()] = place;
    }
    barrier();
    if (thread_x() != 0) return;
    for (int w = 1; w < kWarps; ++w) take(best_of_warps[w], places[w]);
    tokens[block_x()] = place;
}

// Rows of kOut elements of From into rows of To, by kBlocks blocks each. Config: kOut, kRun,
// kThreads, kBlocks, From, To.
template <class C>
DEVICE void copy_rows(const typename C::From* from, i64 from_stride, typename C::To* to,
                      i64 to_stride) {
    constexpr int kBlocks = int(C::kBlocks);
    i64 i = (i64(block_x() % kBlocks) * C::kThreads + thread_x()) * C::kRun;
    i64 row = block_x() / kBlocks;
    if (i >= C::kOut) return;
    write_run<int(C::kRun), 1>(to + row * to_stride + i,
                               load_floats<int(C::kRun), 1>(from + row * from_stride + i));
}

}  // namespace cleave
