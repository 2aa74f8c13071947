// SPDX-License-Identifier: Apache-2.0
// A slice of a block's product by its warps, each with 16 x 16 tiles of its own (tile.cuh). Rows of
// shared memory are padded so that their neighbours start in other banks.
#pragma once

#include "tile.cuh"

namespace cleave {

template <class C, class S>
struct WarpTiles {
    using M = MatrixTile<S>;
    static constexpr int kM = int(C::kTokens), kN = int(C::kRows), kK = int(C::kDepth);
    static constexpr int kWarps = int(C::kThreads) / WARP;
    static constexpr int kStride = kK + row_padding<S>(), kAlign = 16;
    static constexpr int kTilesM = kM / 16, kTilesN = kN / 16;
    // Warps as a grid over the tiles, as square as they allow.
    static constexpr int kWarpsM = kTilesM >= 4 && kWarps >= 4   ? (kWarps >= 16 ? 4 : 2)
                                   : kTilesM >= 2 && kWarps >= 2 ? 2
                                                                 : 1;
    static constexpr int kWarpsN = kWarps / kWarpsM;
    static constexpr int kMineM = ceil_div(kTilesM, kWarpsM), kMineN = ceil_div(kTilesN, kWarpsN);
    static constexpr int kInFlight = turns(2);
    static constexpr bool kAsync = false;

    typename M::C sum[kMineM][kMineN];

    static DEVICE int skip(const float*) { return 0; }
    static DEVICE constexpr int place(int row, int k) { return row * kStride + k; }
    static DEVICE void publish() {}

    DEVICE void clear() {
#pragma unroll
        for (int m = 0; m < kMineM; ++m)
#pragma unroll
            for (int n = 0; n < kMineN; ++n) sum[m][n] = M::zero();
    }

    DEVICE void begin(const S*, const S*) {}

    // This warp's tiles of one slice. Tiles of tokens that are not there cost nothing.
    template <int>
    DEVICE void finish(const S* left, const S* right, int tokens) {
        int m0 = warp() / kWarpsN, n0 = warp() % kWarpsN;
#pragma unroll kInFlight
        for (int k = 0; k < kK; k += M::kDepth) {
            typename M::B b[kMineN];
#pragma unroll
            for (int n = 0; n < kMineN; ++n) {
                int tile = n0 + n * kWarpsN;
                if (tile < kTilesN) b[n] = M::load_b(right + tile * 16 * kStride + k, kStride);
            }
#pragma unroll
            for (int m = 0; m < kMineM; ++m) {
                int tile = m0 + m * kWarpsM;
                if (tile >= kTilesM || tile * 16 >= tokens) continue;
                typename M::A a = M::load_a(left + tile * 16 * kStride + k, kStride);
#pragma unroll
                for (int n = 0; n < kMineN; ++n)
                    if (n0 + n * kWarpsN < kTilesN) M::multiply(sum[m][n], a, b[n]);
            }
        }
    }

    template <int>
    DEVICE void settle() {}

    // Into a table [kM, stride].
    DEVICE void write(float* c, int stride) const {
        int m0 = warp() / kWarpsN, n0 = warp() % kWarpsN;
#pragma unroll
        for (int m = 0; m < kMineM; ++m)
#pragma unroll
            for (int n = 0; n < kMineN; ++n) {
                int tm = m0 + m * kWarpsM, tn = n0 + n * kWarpsN;
                if (tm >= kTilesM || tn >= kTilesN) continue;
#pragma unroll
                for (int i = 0; i < M::kC; ++i)
                    c[(tm * 16 + M::c_row(lane(), i)) * stride + tn * 16 + M::c_col(lane(), i)] =
                        sum[m][n].v[i];
            }
    }
};

}  // namespace cleave
