// SPDX-License-Identifier: Apache-2.0
// A slice of a block's product by its warpgroups (wgmma), each with 64 tokens and all kRows
// features. Operands stay in shared memory, in rows of 64 elements swizzled as WgmmaOperand has
// them; the product runs while the block fetches the next slice.
#pragma once

#include "tile.cuh"

#if defined(CLEAVE_WGMMA)

namespace cleave {

// Columns [kFrom, kN) of a warpgroup's sum, in the widest instructions that fit.
template <class S, int kFrom, int kN>
struct WarpgroupColumns {
    static constexpr int kRest = kN - kFrom;
    static constexpr int kWidth = kRest >= 128 ? 128 : kRest >= 64 ? 64 : kRest >= 32 ? 32 : 16;
    WarpgroupSum<kWidth> sum;
    WarpgroupColumns<S, kFrom + kWidth, kN> rest;

    DEVICE void clear() {
        sum.clear();
        rest.clear();
    }
    // By the descriptors of the first columns.
    DEVICE void multiply(u64 left, u64 right) {
        wgmma<S>(sum, left, right);
        // Columns start at whole groups of rows.
        rest.multiply(left, right + kWidth * WgmmaOperand::kRowBytes / 16);
    }
    DEVICE void hold() {
        sum.hold();
        rest.hold();
    }
    DEVICE void write(float* c, int stride) const {
        using Layout = typename WarpgroupSum<kWidth>::Layout;
        int thread = thread_x() % Layout::kLanes;
#pragma unroll
        for (int i = 0; i < Layout::kC; ++i)
            c[Layout::c_row(thread, i) * stride + kFrom + Layout::c_col(thread, i)] = sum.at(i);
        rest.write(c, stride);
    }
};
template <class S, int kN>
struct WarpgroupColumns<S, kN, kN> {
    DEVICE void clear() {}
    DEVICE void multiply(u64, u64) {}
    DEVICE void hold() {}
    DEVICE void write(float*, int) const {}
};

template <class C, class S>
struct WarpgroupTiles {
    static constexpr int kM = int(C::kTokens), kN = int(C::kRows), kK = int(C::kDepth);
    static constexpr int kStride = WgmmaOperand::kDepth, kAlign = WgmmaOperand::kGroupBytes;
    static constexpr int kThreadsOfGroup = 128;
    static constexpr bool kAsync = true;
    static_assert(kK == WgmmaOperand::kDepth && kN % 16 == 0 && sizeof(S) == 2);
    static_assert(kM % 64 == 0 && int(C::kThreads) == kM / 64 * kThreadsOfGroup,
                  "a warpgroup takes 64 tokens");

    WarpgroupColumns<S, 0, kN> columns;

    // Bytes to the next place that the swizzle's pattern may start at.
    static DEVICE int skip(const float* shared) {
        return int((kAlign - shared_address(shared) % kAlign) % kAlign);
    }
    static DEVICE constexpr int place(int row, int k) { return WgmmaOperand::place(row, k) / 2; }
    static DEVICE void publish() { async_fence(); }

    DEVICE void clear() { columns.clear(); }

    DEVICE void begin(const S* left, const S* right) {
        const S* mine = left + thread_x() / kThreadsOfGroup * 64 * kStride;
        // Addresses are in units of 16 bytes; none of these sums overflows their field.
        const u64 a = WgmmaOperand::descriptor(shared_address(mine)),
                  b = WgmmaOperand::descriptor(shared_address(right));
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kK; k += 16) columns.multiply(a + u64(k / 8), b + u64(k / 8));
        wgmma_commit();
    }
    // All products but the last kLag have ended; settle(): all.
    template <int kLag>
    DEVICE void finish(const S*, const S*, int) {
        wgmma_wait<kLag>();
        if constexpr (kLag == 0) columns.hold();
    }
    template <int kLag>
    DEVICE void settle() {
        if constexpr (kLag > 0) {
            wgmma_wait<0>();
            columns.hold();
        }
    }
    DEVICE void write(float* c, int stride) const {
        columns.write(c + thread_x() / kThreadsOfGroup * 64 * stride, stride);
    }
};

}  // namespace cleave

#endif
