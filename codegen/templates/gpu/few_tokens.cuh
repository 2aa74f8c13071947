// SPDX-License-Identifier: Apache-2.0
// Matrix products of a few tokens (decode): weights stream through the registers once, 16 bytes a lane, each row
// read by kLanes neighbouring lanes; activations stand in shared memory as f32, read for kAtOnce rows together.
// A fused RMSNorm multiplies by its weight while staging and by its scale at the end, so x is read once.
//
// Config: kIn, kThreads, kTokens, kRows (rows of the block's table), kDepth (features staged at once), kLanes,
// kAtOnce, X (activations), kXAlign (every run of as many elements of x may be loaded at once), kNorm,
// NormWeight, kEpsilon, kNormOffset.
#pragma once

#include "weights.cuh"

namespace cleave {

// Weights that a block asks for before it waits for the launches before it. Blocks of 256 threads that stand on an H100 at
// once, four to eight a unit of 132, so ask for 17 to 35 MB of its 50 MB of second-level cache.
constexpr i64 kAheadBytes = 32 * 1024;

template <class C, class W>
struct FewTokens {
    using Matrix = Weights<W>;
    static constexpr int kWidth = Matrix::width(C::kIn);
    // Rows of quantised matrices are padded, with codes that meet zeros.
    static constexpr int kPadded = int(round_up<i64>(C::kIn, kWidth));
    // Elements that stay neighbours in shared memory.
    static constexpr int kUnit = min(kWidth, load_width<float>(C::kIn));
    static constexpr int kPlanes = kWidth / kUnit;
    static constexpr int kWarps = int(C::kThreads) / WARP;
    static constexpr int kGroups = int(C::kThreads) / int(C::kLanes);
    static constexpr int kChunks = int(ceil_div<i64>(C::kIn, C::kDepth));
    static constexpr int kT = int(C::kTokens), kR = int(C::kAtOnce);
    static constexpr int kDepth = int(round_up<i64>(C::kDepth, kWidth)), kLanes = int(C::kLanes);
    // Turns whose loads are under way together, as far as registers go.
    static constexpr int kInFlight = turns(kR * kWidth <= 16 && kT <= 2 ? 4
                                           : kR * kWidth <= 32          ? 2
                                                                        : 1);
    static constexpr int kCStride = int(C::kRows);
    static constexpr i64 kSharedFloats = i64(kT) * kDepth + i64(kT) * C::kRows + i64(kWarps) * kT;
    static_assert((C::kDepth % kWidth == 0 || kChunks == 1) && kDepth % kWidth == 0 &&
                  C::kRows % (kGroups * kR) == 0);

    float* x;  // [kT, kDepth], runs of kWidth cut into planes: no two lanes of a load share a bank
    float* c;  // [kT, kRows]: the products
    float* squares;  // [kWarps, kT]

    DEVICE explicit FewTokens(float* shared)
        : x(shared), c(shared + kT * kDepth), squares(c + i64(kT) * C::kRows) {}

    // Place of feature k (a multiple of kUnit) of a staged token.
    static DEVICE int place(int k) {
        return k / kUnit % kPlanes * (kDepth / kPlanes) + k / kWidth * kUnit;
    }

    // Features [k0, k0 + kDepth) of the tokens, weighted by the norm; `sums` collects their squares.
    template <class Norm>
    DEVICE void stage(const Rows<typename C::X>& in, i64 t0, int tokens, int k0, const Norm* norm,
                      float* sums) {
        int depth = min(kDepth, kPadded - k0);
#pragma unroll
        for (int t = 0; t < kT; ++t) {
            const typename C::X* row = in.row(t0 + min(t, tokens - 1));
            for (int k = thread_x() * kUnit; k < depth; k += int(C::kThreads) * kUnit) {
                if (kPadded > int(C::kIn) && k0 + k >= int(C::kIn)) {
                    store_floats<kUnit>(x + t * kDepth + place(k), Floats<kUnit>{});
                    continue;
                }
                Floats<kUnit> v = load_floats<kUnit, int(C::kXAlign)>(row + k0 + k);
                if constexpr (C::kNorm) {
                    Floats<kUnit> g = load_floats<kUnit>(norm + k0 + k);
#pragma unroll
                    for (int j = 0; j < kUnit; ++j) {
                        sums[t] = fma(v[j], v[j], sums[t]);
                        v[j] *= g[j] + C::kNormOffset;
                    }
                }
                store_floats<kUnit>(x + t * kDepth + place(k), v);
            }
        }
    }

    // Table rows [j, j + kR) of this lane's group, features [k0, ...): added to c.
    template <class RowOf>
    DEVICE void rows(const RowOf& row_of, int j, int k0) {
        float sum[kR][kT];
        typename Matrix::Row row[kR];
#pragma unroll
        for (int r = 0; r < kR; ++r) {
            row[r] = row_of(j + r);
#pragma unroll
            for (int t = 0; t < kT; ++t) sum[r][t] = 0.0f;
        }
        int depth = min(kDepth, int(C::kIn) - k0);
        int first = thread_x() % kLanes * kWidth;
        // Where lanes come out even they all make the same turns, and ptxas need not keep who is still there.
        constexpr int kStep = kLanes * kWidth;
        constexpr bool kEven = kDepth % kStep == 0 && C::kIn % kStep == 0;
#pragma unroll kInFlight
        for (int base = 0; base < depth; base += kStep) {
            const int k = base + first;
            if (!kEven && k >= depth) break;
            Floats<kWidth> w[kR];
#pragma unroll
            for (int r = 0; r < kR; ++r) w[r] = Matrix::template load<kWidth>(row[r], k0 + k);
#pragma unroll
            for (int t = 0; t < kT; ++t) {
#pragma unroll
                for (int p = 0; p < kPlanes; ++p) {
                    Floats<kUnit> v =
                        load_floats<kUnit>(x + t * kDepth + p * (kDepth / kPlanes) + k / kPlanes);
#pragma unroll
                    for (int r = 0; r < kR; ++r)
#pragma unroll
                        for (int i = 0; i < kUnit; ++i)
                            sum[r][t] = fma(w[r][p * kUnit + i], v[i], sum[r][t]);
                }
            }
        }
#pragma unroll
        for (int r = 0; r < kR; ++r)
#pragma unroll
            for (int t = 0; t < kT; ++t) {
                float total = group_sum<kLanes>(sum[r][t]);
                if (thread_x() % kLanes == 0) {
                    float* to = c + t * kCStride + j + r;
                    *to = k0 == 0 ? total : *to + total;
                }
            }
    }

    // Fetches ahead what the block will read first: equal beginnings of the rows of its first turn, or more of them where they
    // are short; a warp's first lane asks for its share. One block asks for the norm's weights, which all read.
    template <class RowOf, class Norm>
    static DEVICE void ahead(const RowOf& row_of, const Norm* norm) {
        constexpr i64 kRowBytes = Matrix::row_bytes(C::kIn);
        constexpr i64 kFirst = max<i64>(kGroups * kR, kAheadBytes / kRowBytes);
        constexpr int kCount = int(min<i64>(kFirst, C::kRows));
        constexpr i64 kBytes = min<i64>(kRowBytes, kAheadBytes / kCount);
        if (lane() != 0) return;
#pragma unroll 1
        for (int j = warp(); j < kCount; j += kWarps) fetch_ahead(Matrix::begin(row_of(j)), kBytes);
        if (C::kNorm && block_x() == 0 && warp() == 0)
            fetch_ahead(norm, C::kIn * i64(sizeof(Norm)));
    }

    // c[t, j] = x[t0 + t] . row_of(j), before the norm's scale. Ends with a barrier.
    template <class RowOf, class Norm>
    DEVICE void run(const Rows<typename C::X>& in, i64 t0, int tokens, const RowOf& row_of,
                    const Norm* norm) {
        float sums[kT];
#pragma unroll
        for (int t = 0; t < kT; ++t) sums[t] = 0.0f;
        int group = thread_x() / kLanes;
        constexpr int kTurns = int(C::kRows) / (kGroups * kR);
        static_assert(kTurns * kGroups * kR == int(C::kRows), "every group takes as many rows");
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            stage(in, t0, tokens, chunk * kDepth, norm, sums);
            barrier();
            for (int turn = 0; turn < kTurns; ++turn)
                rows(row_of, (group + turn * kGroups) * kR, chunk * kDepth);
            if constexpr (kChunks > 1) {
                if (chunk + 1 < kChunks) {
                    barrier();
                }
            }
        }
        if constexpr (C::kNorm) {
#pragma unroll
            for (int t = 0; t < kT; ++t) {
                float total = warp_sum(sums[t]);
                if (lane() == 0) squares[warp() * kT + t] = total;
            }
        }
        barrier();
    }

    // What token t's products are to be multiplied by.
    DEVICE float scale(int t) const {
        if constexpr (!C::kNorm) return 1.0f;
        float total = 0.0f;
        for (int w = 0; w < kWarps; ++w) total += squares[w * kT + t];
        return rsqrt(total * (1.0f / float(C::kIn)) + C::kEpsilon);
    }
    DEVICE float at(int t, int j) const { return c[t * kCStride + j]; }
};

}  // namespace cleave
