// SPDX-License-Identifier: Apache-2.0
// Matrix products of a few tokens (decode): weights stream through once, 16 bytes a lane, each row
// read by kLanes neighbouring lanes; activations are in shared memory as f32, read for kAtOnce
// rows together. Weights are loaded into registers, or, where kStages > 0, copied into shared
// memory so many pieces of 16 bytes ahead (weight_ring.cuh). A fused RMSNorm multiplies by its
// weight while staging and by its scale at the end, so x is read once.
//
// Config: kIn, kThreads, kTokens, kRows (rows of the block's table), kDepth (features staged at
// once), kLanes, kAtOnce, kStages, X (activations), kXAlign (every run of as many elements of x may
// be loaded at once), kNorm, NormWeight, kEpsilon, kNormOffset.
#pragma once

#include "weight_ring.cuh"
#include "weights.cuh"

namespace cleave {

template <class C, class W>
struct Gemv {
    using Matrix = Weights<W>;
    static constexpr int kIn = int(C::kIn), kThreads = int(C::kThreads);
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
    static constexpr int kTurns = int(C::kRows) / (kGroups * kR);
    // Copies that do not run beside their thread (the CPU's, unchecked) gain nothing.
#if defined(CLEAVE_ASYNC_COPIES)
    static constexpr int kStages = int(C::kStages);
#else
    static constexpr int kStages = 0;
#endif
    // Where lanes come out even they all make the same steps, and ptxas need not keep who is still
    // there.
    static constexpr int kStep = kLanes * kWidth;
    static constexpr bool kEven = kDepth % kStep == 0 && C::kIn % kStep == 0;
    // Turns whose loads are under way together, as far as registers go.
    static constexpr int kInFlight = turns(kR * kWidth <= 16 && kT <= 2 ? 4
                                           : kR * kWidth <= 32          ? 2
                                                                        : 1);
    static constexpr int kCStride = int(C::kRows);
    static constexpr i64 kRingFloats = i64(kStages) * kR * kThreads * 4;
    static constexpr i64 kSharedFloats =
        kRingFloats + i64(kT) * kDepth + i64(kT) * C::kRows + i64(kWarps) * kT;
    static_assert((C::kDepth % kWidth == 0 || kChunks == 1) && kDepth % kWidth == 0 &&
                  C::kRows % (kGroups * kR) == 0);

    float* ring;  // [kStages, kR, kThreads] of 16 bytes
    float* x;  // [kT, kDepth], runs of kWidth cut into planes: no two lanes of a load share a bank
    float* c;  // [kT, kRows]: the products
    float* squares;  // [kWarps, kT]

    DEVICE explicit Gemv(float* shared)
        : ring(shared),
          x(shared + kRingFloats),
          c(x + kT * kDepth),
          squares(c + i64(kT) * C::kRows) {}

    // The first of the rows that this lane's group takes in a turn, and of the features that it
    // takes in a step.
    static DEVICE int first_row(int turn) { return (thread_x() / kLanes + turn * kGroups) * kR; }
    static DEVICE int first_feature() { return thread_x() % kLanes * kWidth; }

    // Place of feature k (a multiple of kUnit) of a staged token.
    static DEVICE int place(int k) {
        return k / kUnit % kPlanes * (kDepth / kPlanes) + k / kWidth * kUnit;
    }

    // Features [k0, k0 + kDepth) of the tokens, weighted by the norm; `sums` collects their
    // squares.
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

    // sum += features [k, k + kWidth) of the staged tokens times those of rows.
    DEVICE void multiply(const Floats<kWidth> (&w)[kR], int k, float (&sum)[kR][kT]) const {
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

    // Features [k0, k0 + depth) of rows [j, j + kR), through registers.
    template <class RowOf>
    DEVICE void load_rows(const RowOf& row_of, int j, int k0, int depth,
                          float (&sum)[kR][kT]) const {
        typename Matrix::Row row[kR];
#pragma unroll
        for (int r = 0; r < kR; ++r) row[r] = row_of(j + r);
        const int first = first_feature();
#pragma unroll kInFlight
        for (int base = 0; base < depth; base += kStep) {
            const int k = base + first;
            if (!kEven && k >= depth) break;
            Floats<kWidth> w[kR];
#pragma unroll
            for (int r = 0; r < kR; ++r) w[r] = Matrix::template load<kWidth>(row[r], k0 + k);
            multiply(w, k, sum);
        }
    }

    // The same through the ring, whose next rows they are.
    template <class Ring>
    DEVICE void take_rows(Ring& ring, int depth, float (&sum)[kR][kT]) const {
#pragma unroll 1
        for (int base = 0; base < depth; base += kStep) {
            const int k = base + ring.first;
            ring.wait();
            if (kEven || k < depth) {
                Floats<kWidth> w[kR];
#pragma unroll
                for (int r = 0; r < kR; ++r)
                    w[r] = Matrix::template load<kWidth>(
                        reinterpret_cast<typename Matrix::Row>(ring.piece(r)), 0);
                multiply(w, k, sum);
            }
            ring.refill();
        }
    }

    // Sums of rows [j, j + kR) of this lane's group: added to c.
    DEVICE void add_to_table(int j, bool first, const float (&sum)[kR][kT]) {
#pragma unroll
        for (int r = 0; r < kR; ++r)
#pragma unroll
            for (int t = 0; t < kT; ++t) {
                float total = group_sum<kLanes>(sum[r][t]);
                if (thread_x() % kLanes == 0) {
                    float* to = c + t * kCStride + j + r;
                    *to = first ? total : *to + total;
                }
            }
    }

    // Before the launches before it have ended: fills the ring.
    template <class RowOf>
    DEVICE void ahead(const RowOf& row_of) {
        if constexpr (kStages > 0) WeightRing<Gemv, RowOf>(ring, row_of).template begin<true>();
    }

    // c[t, j] = x[t0 + t] . row_of(j), before the norm's scale. Ends with a barrier.
    template <class RowOf, class Norm>
    DEVICE void run(const Rows<typename C::X>& in, i64 t0, int tokens, const RowOf& row_of,
                    const Norm* norm) {
        float sums[kT];
#pragma unroll
        for (int t = 0; t < kT; ++t) sums[t] = 0.0f;
        WeightRing<Gemv, RowOf> weights(ring, row_of);
        if constexpr (kStages > 0) weights.template begin<false>();
        static_assert(kTurns * kGroups * kR == int(C::kRows), "every group takes as many rows");
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            stage(in, t0, tokens, chunk * kDepth, norm, sums);
            barrier();
            const int depth = min(kDepth, kIn - chunk * kDepth);
            for (int turn = 0; turn < kTurns; ++turn) {
                float sum[kR][kT];
#pragma unroll
                for (int r = 0; r < kR; ++r)
#pragma unroll
                    for (int t = 0; t < kT; ++t) sum[r][t] = 0.0f;
                if constexpr (kStages > 0)
                    take_rows(weights, depth, sum);
                else
                    load_rows(row_of, first_row(turn), chunk * kDepth, depth, sum);
                add_to_table(first_row(turn), chunk == 0, sum);
            }
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
    DEVICE void set(int t, int j, float v) { c[t * kCStride + j] = v; }
    template <int N>
    DEVICE Floats<N> run_at(int t, int j) const {
        static_assert(N == 1);
        return {{at(t, j)}};
    }
};

}  // namespace cleave
