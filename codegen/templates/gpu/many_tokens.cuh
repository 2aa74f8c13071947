// SPDX-License-Identifier: Apache-2.0
// Matrix products of many tokens (prefill): a block computes kTokens x kRows, kDepth features at a time, in the tiles of
// its warps (warp_tiles.cuh) or, where C::kWarpgroups, of its warpgroups (warpgroup_tiles.cuh). While one slice is
// multiplied, the next one's weights are copied asynchronously into the other half of shared memory and its activations
// into registers, where they are normalised and narrowed to the weights' type. One barrier a slice.
//
// Config: kIn, kThreads, kTokens, kRows, kDepth (multiples of 16), kWarpgroups, X, kXAlign, kNorm, NormWeight,
// kEpsilon, kNormOffset.
#pragma once

#include "warp_tiles.cuh"
#include "warpgroup_tiles.cuh"
#include "weights.cuh"

namespace cleave {

// Half a slice is [kM, kDepth] activations and [kN, kDepth] weights, whose element [row, k] lies at place(row, k), eight
// neighbours from a multiple of eight on in a row.
template <class C, class S, bool kWarpgroups = C::kWarpgroups>
struct TilesOf {
    using type = WarpTiles<C, S>;
};
#if defined(CLEAVE_WGMMA)
template <class C, class S>
struct TilesOf<C, S, true> {
    using type = WarpgroupTiles<C, S>;
};
#endif

template <class C, class W>
struct ManyTokens {
    using Matrix = Weights<W>;
    using S = typename Matrix::Staged;
    using Tiles = typename TilesOf<C, S>::type;
    static constexpr int kM = int(C::kTokens), kN = int(C::kRows), kK = int(C::kDepth);
    static constexpr int kThreads = int(C::kThreads), kWarps = kThreads / WARP;
    static constexpr int kSlices = int(ceil_div<i64>(C::kIn, kK));
    static constexpr int kCStride = kN + 4;

    static constexpr i64 kHalf =
        i64(kM + kN) * Tiles::kStride * i64(sizeof(S));  // bytes of a slice
    static constexpr i64 kTableBytes = i64(kM) * kCStride * 4;
    // From 16 bytes on to where slices may start.
    static constexpr i64 kSlack = Tiles::kAlign - 16;
    static constexpr i64 kSharedFloats = (kSlack + max(2 * kHalf, kTableBytes)) / 4 + kM;
    static_assert(kM % 16 == 0 && kN % 16 == 0 && kK % 16 == 0 && kHalf % 16 == 0);

    // Activations travel as runs of kRun features; thread i takes runs i, i + kThreads, ...
    static constexpr int kRun = load_width<float>(C::kIn);
    static constexpr int kRuns = kM * kK / kRun, kMyRuns = ceil_div(kRuns, kThreads);
    // Weights as runs that a copy may take at once.
    static constexpr int kCopy = Matrix::width(C::kIn), kPiece = min(kCopy, 8);

    S* slices;      // 2 x (activations, weights)
    float* c;       // [kM, kCStride], in the same place afterwards
    float* scales;  // [kM]

    DEVICE explicit ManyTokens(float* shared)
        : slices(reinterpret_cast<S*>(shared + Tiles::skip(shared) / 4)),
          c(reinterpret_cast<float*>(slices)),
          scales(shared + kSharedFloats - kM) {}

    DEVICE S* activations(int half) { return slices + half * (kHalf / i64(sizeof(S))); }
    DEVICE S* weights(int half) { return activations(half) + kM * Tiles::kStride; }

    // A warp a token: 1 / sqrt(mean square + epsilon).
    DEVICE void find_scales(const Rows<typename C::X>& in, i64 t0, int tokens) {
        for (int t = warp(); t < kM; t += kWarps) {
            float sum = 0.0f;
            if (t < tokens) {
                const typename C::X* row = in.row(t0 + t);
                for (int k = lane() * kRun; k < int(C::kIn); k += WARP * kRun) {
                    Floats<kRun> v = load_floats<kRun, int(C::kXAlign)>(row + k);
#pragma unroll
                    for (int j = 0; j < kRun; ++j) sum = fma(v[j], v[j], sum);
                }
            }
            sum = warp_sum(sum);
            if (lane() == 0) scales[t] = rsqrt(sum * (1.0f / float(C::kIn)) + C::kEpsilon);
        }
        barrier();
    }

    template <class RowOf>
    DEVICE void copy_weights(const RowOf& row_of, int slice, int half) {
        S* to = weights(half);
        constexpr int kPieces = kN * kK / kCopy;
        static_assert(kK % kCopy == 0);
        for (int i = thread_x(); i < kPieces; i += kThreads) {
            int j = i / (kK / kCopy), k = i % (kK / kCopy) * kCopy;
            bool valid = slice * kK + k < int(C::kIn);
            i64 at = valid ? slice * kK + k : 0;
            S* target = to + Tiles::place(j, k);
            if constexpr (Matrix::kPlain) {
                constexpr int kBytes = kCopy * int(sizeof(S));
                if constexpr (kBytes >= 4)
                    async_copy<kBytes>(target, row_of(j) + at, valid);
                else
                    *target = valid ? row_of(j)[at] : S{};
            } else {
                // Past the last column stand codes that meet zeros, in groups that exist.
                Floats<kCopy> v{};
                if (valid) v = Matrix::template load<kCopy>(row_of(j), at);
#pragma unroll
                for (int n = 0; n < kCopy; n += kPiece)
                    store_floats<kPiece>(to + Tiles::place(j, k + n), slice_of<kPiece>(v, n));
            }
        }
        async_commit();
    }

    template <class Norm>
    DEVICE void load_activations(const Rows<typename C::X>& in, i64 t0, int tokens, int slice,
                                 const Norm* norm, Floats<kRun>* runs) {
#pragma unroll
        for (int n = 0; n < kMyRuns; ++n) {
            int i = thread_x() + n * kThreads;
            int t = i / (kK / kRun), k = slice * kK + i % (kK / kRun) * kRun;
            if (i < kRuns && t < tokens && k < int(C::kIn)) {
                runs[n] = load_floats<kRun, int(C::kXAlign)>(in.row(t0 + t) + k);
                if constexpr (C::kNorm) {
                    Floats<kRun> g = load_floats<kRun>(norm + k);
#pragma unroll
                    for (int j = 0; j < kRun; ++j)
                        runs[n][j] *= scales[t] * (g[j] + C::kNormOffset);
                }
            } else {
#pragma unroll
                for (int j = 0; j < kRun; ++j) runs[n][j] = 0.0f;
            }
        }
    }

    DEVICE void store_activations(const Floats<kRun>* runs, int half) {
        S* to = activations(half);
#pragma unroll
        for (int n = 0; n < kMyRuns; ++n) {
            int i = thread_x() + n * kThreads;
            if (i < kRuns)
                store_floats<kRun>(to + Tiles::place(i / (kK / kRun), i % (kK / kRun) * kRun),
                                   runs[n]);
        }
    }

    // c[t, j] = norm(x[t0 + t]) . row_of(j). Ends with a barrier.
    template <class RowOf, class Norm>
    DEVICE void run(const Rows<typename C::X>& in, i64 t0, int tokens, const RowOf& row_of,
                    const Norm* norm) {
        copy_weights(row_of, 0, 0);
        if constexpr (C::kNorm) find_scales(in, t0, tokens);
        Tiles tiles;
        tiles.clear();
        Floats<kRun> runs[kMyRuns];
        load_activations(in, t0, tokens, 0, norm, runs);
        store_activations(runs, 0);
        for (int slice = 0; slice < kSlices; ++slice) {
            async_wait<0>();
            Tiles::publish();
            barrier();
            tiles.begin(activations(slice % 2), weights(slice % 2));
            bool more = slice + 1 < kSlices;
            if (more) {
                copy_weights(row_of, slice + 1, (slice + 1) % 2);
                load_activations(in, t0, tokens, slice + 1, norm, runs);
            }
            tiles.finish(activations(slice % 2), weights(slice % 2), tokens);
            if (more) store_activations(runs, (slice + 1) % 2);
        }
        barrier();
        tiles.write(c, kCStride);
        barrier();
    }

    DEVICE float scale(int) const { return 1.0f; }
    DEVICE float at(int t, int j) const { return c[t * kCStride + j]; }
};

}  // namespace cleave
