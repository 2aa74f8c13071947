// SPDX-License-Identifier: Apache-2.0
// Matrix products of many tokens (prefill): a block computes kTokens x kRows, kDepth features at a
// time, in the tiles of its warps (warp_tiles.cuh) or, where C::kWarpgroups, of its warpgroups
// (warpgroup_tiles.cuh). Slices of both operands are in a ring of kStages in shared memory; one
// barrier a slice. Prepared activations (prepare.cuh) and weights are copied asynchronously, kAhead
// slices before their turn; a warpgroup's product of one slice may still run when that of the next
// begins. Other activations are fetched into registers while a slice is multiplied, normalised and
// narrowed to the weights' type: two stages, and the free one takes them. Activations that are
// narrowed to f16 may be beyond it (kFactors). Prepared ones were divided by a power of two for
// each row (f16_factor), and the epilogue multiplies by it. Others are compared with f16's largest
// on their way; should one of a block be beyond, the rows that hold such are multiplied anew, as
// f32. So no rows are read in advance, and the bits of a row within f16 do not depend on its
// neighbours.
//
// Config: kIn, kThreads, kTokens, kRows, kDepth (multiples of 16), kStages, kWarpgroups, kPrepared,
// kFactors, In (of activations), kXAlign, kNorm, NormWeight, kEpsilon, kNormOffset.
#pragma once

#include "warp_tiles.cuh"
#include "warpgroup_tiles.cuh"
#include "weights.cuh"

namespace cleave {

// A slice is [kM, kDepth] activations and [kN, kDepth] weights, whose element [row, k] is at
// place(row, k), eight neighbours from a multiple of eight on in a row.
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
struct Gemm {
    using Matrix = Weights<W>;
    using S = typename Matrix::Staged;
    using Tiles = typename TilesOf<C, S>::type;
    static constexpr int kM = int(C::kTokens), kN = int(C::kRows), kK = int(C::kDepth);
    static constexpr int kThreads = int(C::kThreads), kWarps = kThreads / WARP;
    static constexpr int kSlices = int(ceil_div<i64>(C::kIn, kK));
    static constexpr int kCStride = kN + 4;

    using In = typename C::In;
    static constexpr int kStages = int(C::kStages);
    // Slices whose products may run beside the next one's, and slices on their way: a stage is
    // written again when its product has ended in all warps: after the barrier of a later slice.
    static constexpr int kLag = Tiles::kAsync && kStages > 3 ? 1 : 0;
    static constexpr int kAhead = kStages - 1 - kLag;
    static_assert(kStages >= 2 && (C::kPrepared || kStages == 2));

    static constexpr i64 kStage =
        i64(kM + kN) * Tiles::kStride * i64(sizeof(S));  // bytes of a slice
    static constexpr i64 kTableBytes = i64(kM) * kCStride * 4;
    // From 16 bytes on to where slices may start.
    static constexpr i64 kSlack = Tiles::kAlign - 16;
    static constexpr i64 kSharedFloats = (kSlack + max(kStages * kStage, kTableBytes)) / 4 + kM;
    static_assert(kM % 16 == 0 && kN % 16 == 0 && kK % 16 == 0 && kStage % 16 == 0);

    // Activations travel as runs of kRun features; thread i takes runs i, i + kThreads, ...
    static constexpr int kRun = load_width<float>(C::kIn);
    static constexpr int kRuns = kM * kK / kRun, kMyRuns = ceil_div(kRuns, kThreads);
    // Prepared activations and their weights travel as copies of 8 features.
    static constexpr int kOfRow = kK / 8, kApart = kThreads / kOfRow;
    static constexpr int kTurnsM = ceil_div(kM, kApart), kTurnsN = ceil_div(kN, kApart);
    static_assert(!C::kPrepared || kApart % 8 == 0, "neighbours in place are so in every turn");
    // Weights as runs that a copy may take at once.
    static constexpr int kCopy = Matrix::width(C::kIn), kPiece = min(kCopy, 8);

    static constexpr bool kScaled = C::kFactors && C::kPrepared,
                          kChecked = C::kFactors && !C::kPrepared;
    static_assert(!kChecked || (kWarps <= kM && kCopy % kRun == 0));

    S* slices;      // kStages x (activations, weights)
    float* c;       // [kM, kCStride], in the same place afterwards
    float* scales;  // [kM]: of norms, or factors of prepared rows

    DEVICE explicit Gemm(float* shared)
        : slices(reinterpret_cast<S*>(shared + Tiles::skip(shared) / 4)),
          c(reinterpret_cast<float*>(slices)),
          scales(shared + kSharedFloats - kM) {}

    DEVICE S* activations(int stage) { return slices + stage * int(kStage / i64(sizeof(S))); }
    DEVICE S* weights(int stage) { return activations(stage) + kM * Tiles::kStride; }

    // A warp a token: 1 / sqrt(mean square + epsilon).
    DEVICE void find_scales(const Rows<In>& in, i64 t0, int tokens) {
        for (int t = warp(); t < kM; t += kWarps) {
            float sum = 0.0f;
            if (t < tokens) {
                const In* row = in.row(t0 + t);
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
    DEVICE void copy_weights(const RowOf& row_of, int slice, int stage) {
        S* to = weights(stage);
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
                // Codes past the last column are in groups that exist, and meet zeros.
                Floats<kCopy> v{};
                if (valid) v = Matrix::template load<kCopy>(row_of(j), at);
#pragma unroll
                for (int n = 0; n < kCopy; n += kPiece)
                    store_floats<kPiece>(to + Tiles::place(j, k + n), slice_of<kPiece>(v, n));
            }
        }
    }

    // What a thread copies of every slice: 8 features of a row, and of rows kApart further. The
    // same features of each slice, so that addresses are found once.
    struct Copies {
        const In* left;           // of the first row
        const S* right[kTurnsN];  // plain weights
        int at;                   // place of the first row
    };
    template <class RowOf>
    DEVICE Copies start_copies(const Rows<In>& in, i64 t0, const RowOf& row_of) {
        const int row = thread_x() / kOfRow, k = thread_x() % kOfRow * 8;
        Copies c;
        c.left = in.row(t0 + row) + k;
        c.at = Tiles::place(row, k);
        if constexpr (Matrix::kPlain) {
#pragma unroll
            for (int n = 0; n < kTurnsN; ++n)
                c.right[n] = row_of(min(row + n * kApart, kN - 1)) + k;
        }
        return c;
    }
    // Tokens and features that are not there read as zero.
    template <class RowOf>
    DEVICE void copy(const Copies& c, int tokens, const RowOf& row_of, int slice, int stage) {
        const int row = thread_x() / kOfRow, k = slice * kK;
        const bool inside = C::kIn % kK == 0 || k + thread_x() % kOfRow * 8 < int(C::kIn);
        S* to = activations(stage) + c.at;
#pragma unroll
        for (int n = 0; n < kTurnsM; ++n)
            if (kM % kApart == 0 || row + n * kApart < kM)
                async_copy<16>(to + n * kApart * Tiles::kStride,
                               c.left + (n * kApart * C::kXStride + k),
                               inside && row + n * kApart < tokens);
        if constexpr (Matrix::kPlain) {
            to = weights(stage) + c.at;
#pragma unroll
            for (int n = 0; n < kTurnsN; ++n)
                if (kN % kApart == 0 || row + n * kApart < kN)
                    async_copy<16>(to + n * kApart * Tiles::kStride, c.right[n] + k, inside);
        } else {
            copy_weights(row_of, slice, stage);
        }
    }

    template <class Norm>
    DEVICE void load_activations(const Rows<In>& in, i64 t0, int tokens, int slice,
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

    // `beyond`: set where one of them is beyond f16.
    DEVICE void store_activations(const Floats<kRun>* runs, int stage, bool& beyond) {
        S* to = activations(stage);
#pragma unroll
        for (int n = 0; n < kMyRuns; ++n) {
            int i = thread_x() + n * kThreads;
            if constexpr (kChecked) {
#pragma unroll
                for (int j = 0; j < kRun; ++j) beyond |= abs(runs[n][j]) > kLargestF16;
            }
            if (i < kRuns)
                store_floats<kRun>(to + Tiles::place(i / (kK / kRun), i % (kK / kRun) * kRun),
                                   runs[n]);
        }
    }

    // Features [k, k + kRun) of a row as they are multiplied.
    template <class Norm>
    DEVICE Floats<kRun> run_of(const In* row, int k, const Norm* norm, float scale) const {
        Floats<kRun> v = load_floats<kRun, int(C::kXAlign)>(row + k);
        if constexpr (C::kNorm) {
            Floats<kRun> g = load_floats<kRun>(norm + k);
#pragma unroll
            for (int j = 0; j < kRun; ++j) v[j] *= scale * (g[j] + C::kNormOffset);
        }
        return v;
    }

    // A warp a token, a lane a feature: rows that are beyond f16 are multiplied anew, as f32. They
    // are few if any: a model has them in a layer or two, of its first tokens.
    template <class RowOf, class Norm>
    DEVICE void multiply_beyond(const Rows<In>& in, i64 t0, int tokens, const RowOf& row_of,
                                const Norm* norm) {
        constexpr int kIn = int(C::kIn);
#pragma unroll 1
        for (int t = warp(); t < tokens; t += kWarps) {
            const In* row = in.row(t0 + t);
            const float scale = C::kNorm ? scales[t] : 1.0f;
            bool beyond = false;
#pragma unroll 1
            for (int k = lane() * kRun; k < kIn; k += WARP * kRun) {
                const Floats<kRun> v = run_of(row, k, norm, scale);
#pragma unroll
                for (int j = 0; j < kRun; ++j) beyond |= abs(v[j]) > kLargestF16;
            }
            if (!warp_any(beyond)) continue;
#pragma unroll 1
            for (int j = lane(); j < kN; j += WARP) {
                const typename Matrix::Row weights = row_of(j);
                Floats<kRun> sum{};
#pragma unroll 1
                for (int k = 0; k < kIn; k += kCopy) {
                    const Floats<kCopy> w = Matrix::template load<kCopy>(weights, k);
#pragma unroll
                    for (int i = 0; i < kCopy; i += kRun) {
                        if (k + i >= kIn) continue;
                        const Floats<kRun> v = run_of(row, k + i, norm, scale);
#pragma unroll
                        for (int n = 0; n < kRun; ++n) sum[n] = fma(v[n], w[i + n], sum[n]);
                    }
                }
                float all = 0.0f;
#pragma unroll
                for (int n = 0; n < kRun; ++n) all += sum[n];
                c[t * kCStride + j] = all;
            }
        }
        barrier();
    }

    // c[t, j] = norm(x[t0 + t]) . row_of(j), divided by scale(t). Ends with a barrier.
    template <class RowOf, class Norm>
    DEVICE void run(const Rows<In>& in, i64 t0, int tokens, const RowOf& row_of, const Norm* norm) {
        Tiles tiles;
        bool beyond = false;
        if constexpr (C::kPrepared) {
            const Copies copies = start_copies(in, t0, row_of);
#pragma unroll
            for (int slice = 0; slice < kAhead; ++slice) {
                if (slice < kSlices) copy(copies, tokens, row_of, slice, slice);
                async_commit();
            }
            if constexpr (kScaled)
                for (int t = thread_x(); t < kM; t += kThreads)
                    scales[t] = t < tokens ? in.factors()[t0 + t] : 1.0f;
            tiles.clear();
            multiply(
                tiles, tokens,
                [&](int slice, int stage) { copy(copies, tokens, row_of, slice, stage); },
                [](int) {});
        } else {
            Floats<kRun> runs[kMyRuns];
            copy_weights(row_of, 0, 0);
            async_commit();
            if constexpr (C::kNorm) find_scales(in, t0, tokens);
            tiles.clear();
            load_activations(in, t0, tokens, 0, norm, runs);
            store_activations(runs, 0, beyond);
            multiply(
                tiles, tokens,
                [&](int slice, int stage) {
                    copy_weights(row_of, slice, stage);
                    load_activations(in, t0, tokens, slice, norm, runs);
                },
                [&](int stage) { store_activations(runs, stage, beyond); });
        }
        tiles.template settle<kLag>();
        barrier();
        tiles.write(c, kCStride);
        if constexpr (kChecked) {
            // Beside the table's columns each warp has a word.
            const bool any = warp_any(beyond);
            if (lane() == 0) c[warp() * kCStride + kN] = any ? 1.0f : 0.0f;
        }
        barrier();
        if constexpr (kChecked) {
            float any = 0.0f;
            for (int w = 0; w < kWarps; ++w) any += c[w * kCStride + kN];
            if (any != 0.0f) multiply_beyond(in, t0, tokens, row_of, norm);
        }
    }

    // All slices; the first kAhead are on their way. `fetch` starts the copy of another one,
    // `store` ends it.
    template <class Fetch, class Store>
    DEVICE void multiply(Tiles& tiles, int tokens, const Fetch& fetch, const Store& store) {
        int stage = 0, next_stage = kAhead;
        for (int slice = 0; slice < kSlices; ++slice) {
            async_wait<kAhead - 1>();
            Tiles::publish();
            barrier();
            tiles.begin(activations(stage), weights(stage));
            const bool more = slice + kAhead < kSlices;
            if (more) fetch(slice + kAhead, next_stage);
            async_commit();
            tiles.template finish<kLag>(activations(stage), weights(stage), tokens);
            if (more) store(next_stage);
            stage = stage + 1 < kStages ? stage + 1 : 0;
            next_stage = next_stage + 1 < kStages ? next_stage + 1 : 0;
        }
    }

    DEVICE float scale(int t) const {
        if constexpr (kScaled) return scales[t];
        return 1.0f;
    }
    DEVICE float at(int t, int j) const { return c[t * kCStride + j]; }
    DEVICE void set(int t, int j, float v) { c[t * kCStride + j] = v; }
    // From j on, a multiple of N.
    template <int N>
    DEVICE Floats<N> run_at(int t, int j) const {
        static_assert(kCStride % N == 0);
        return load_floats<N>(c + t * kCStride + j);
    }
};

}  // namespace cleave
