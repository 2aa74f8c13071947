// SPDX-License-Identifier: Apache-2.0
// Attention of many tokens by warpgroups (wgmma): as attention_prefill.cuh, but a warpgroup owns 64
// queries, and while it works on kKeys keys, the next ones are copied into the other half of shared
// memory; one barrier for each. Everything there is in panels of 64 features, [rows, 64] each,
// swizzled as WgmmaOperand has it: scores are products of queries and keys as they are;
// probabilities stay in registers, where those of a score are those of the left operand, and
// multiply the values by columns (WgmmaOperand::transposed). What a head is shorter than its panels
// reads as zero.
// A cache of 8 bits is copied as it is, and widened to f16 from one place in shared memory to
// another, between two barriers; the next copy goes on meanwhile.
//
// Config: as attention_prefill.cuh's; kQueries is a multiple of 64, Kv 16 or 8 bits, heads of whole
// groups of 8 features.
#pragma once

#include "attention.cuh"

#if defined(CLEAVE_WGMMA)

namespace cleave {

template <class C>
struct WarpgroupAttention {
    using Kv = typename C::Kv;
    using T = typename KvElement<Kv>::Staged;
    using Rows = KvRows<C, const Kv>;
    using X = typename C::X;
    using O = WgmmaOperand;
    static constexpr int kQueries = int(C::kQueries), kKeys = int(C::kKeys);
    static constexpr int kThreads = int(C::kThreads), kGroupThreads = 128;
    static constexpr int kHeadDim = int(C::kHeadDim), kVHeadDim = int(C::kVHeadDim);
    static constexpr int kPanel = O::kDepth, kRun = 8;  // a copy takes 8 elements
    static constexpr int kDim = round_up(kHeadDim, 16), kPanels = ceil_div(kHeadDim, kPanel);
    static constexpr int kVDim = round_up(kVHeadDim, kPanel), kVPanels = kVDim / kPanel;
    static constexpr int kHalf = kKeys * kPanel * (kPanels + kVPanels);  // keys, then values
    // Of 8 bits there are one half, what is copied into the other, and two halves of scales.
    static constexpr bool kScaled = KvElement<Kv>::kScaled;
    static constexpr int kHalves = kScaled ? 1 : 2;
    static constexpr int kCopied = kScaled ? kKeys * (kHeadDim + kVHeadDim) : 0;
    static constexpr i64 kSharedBytes =
        O::kGroupBytes - 16 + i64(sizeof(T)) * (kQueries * kPanel * kPanels + kHalves * kHalf) +
        kCopied + (kScaled ? 16 * kKeys : 0);
    // Columns of an instruction's sum.
    static constexpr int kWidth = kVPanels % 2 == 0 ? 2 * kPanel : kPanel, kSums = kVDim / kWidth;
    static_assert(kQueries % 64 == 0 && kThreads == kQueries / 64 * kGroupThreads &&
                  kKeys == kPanel && kHeadDim % kRun == 0 && kVHeadDim % kRun == 0 &&
                  sizeof(T) == 2);
    using Scores = WarpgroupSum<kKeys>;
    using Sum = WarpgroupSum<kWidth>;
    static constexpr int kRowSlots = 2, kRowLanes = 4;  // rows of a thread; threads that share one

    T *queries, *staged;
    float* scales;  // [2, keys and values, kKeys]
    Kv* copied;     // [kKeys, kHeadDim], then [kKeys, kVHeadDim]
    ValueScales<C> value_unit;
    Sum sum[kSums];
    float top[kRowSlots], total[kRowSlots];
    i64 first[kRowSlots], last[kRowSlots];  // keys that the row sees: [first, last)

    DEVICE explicit WarpgroupAttention(T* shared)
        : queries(shared + (O::kGroupBytes - shared_address(shared) % O::kGroupBytes) %
                               O::kGroupBytes / sizeof(T)),
          staged(queries + kQueries * kPanel * kPanels),
          scales(reinterpret_cast<float*>(staged + kHalves * kHalf)),
          copied(reinterpret_cast<Kv*>(scales + 4 * kKeys)) {}

    static DEVICE int my_group() { return thread_x() / kGroupThreads * 64; }
    static DEVICE int row_slot(int i) { return i / 2 % 2; }
    static DEVICE int c_row(int i) {
        return my_group() + Scores::Layout::c_row(thread_x() % kGroupThreads, i);
    }
    static DEVICE int c_col(int i) { return Scores::Layout::c_col(thread_x() % kGroupThreads, i); }
    // Of [rows, features] in panels.
    static DEVICE int place(int rows, int row, int d) {
        return d / kPanel * rows * kPanel + O::place(row, d % kPanel) / int(sizeof(T));
    }
    DEVICE T* keys(int half) const { return staged + (kScaled ? 0 : half) * kHalf; }
    DEVICE T* values(int half) const { return keys(half) + kKeys * kPanel * kPanels; }
    DEVICE const float* key_scales(int half) const { return scales + half * 2 * kKeys; }
    DEVICE const float* value_scales(int half) const { return key_scales(half) + kKeys; }

    DEVICE void start(const X* q, int tokens, const i32* positions) {
        for (int i = thread_x(); i < kQueries * (kDim / kRun); i += kThreads) {
            int t = i / (kDim / kRun), d = i % (kDim / kRun) * kRun;
            Floats<kRun> v{};
            if (t < tokens && d < kHeadDim)
                v = load_floats<kRun, int(C::kXAlign)>(q + i64(t) * C::kQStride + d);
            store_floats<kRun>(queries + place(kQueries, t, d), v);
        }
        for (int half = 0; half < kHalves; ++half) {
            clear<kHeadDim, kDim>(keys(half));
            clear<kVHeadDim, kVDim>(values(half));
        }
#pragma unroll
        for (int n = 0; n < kSums; ++n) sum[n].clear();
#pragma unroll
        for (int r = 0; r < kRowSlots; ++r) {
            int row = c_row(2 * r);
            last[r] = row < tokens ? i64(positions[row]) + 1 : 0;
            first[r] = C::kWindow > 0 ? last[r] - C::kWindow : 0;
            top[r] = -kInfinity;
            total[r] = 0.0f;
        }
    }

    // Features that no copy writes.
    template <int kFrom, int kTo>
    static DEVICE void clear(T* to) {
        constexpr int kRuns = (kTo - kFrom) / kRun;
        if constexpr (kRuns > 0)
            for (int i = thread_x(); i < kKeys * kRuns; i += kThreads)
                store_vector(to + place(kKeys, i / kRuns, kFrom + i % kRuns * kRun),
                             Vector<T, kRun>{});
    }

    // Keys and values [key, key + kKeys), zero from `end` on.
    DEVICE void stage(const Rows& rows, int key, int end, int half) {
        constexpr int kRuns = max(kHeadDim, kVHeadDim) / kRun, kBytes = kRun * int(sizeof(Kv));
        auto copy = [&](int i, int position, i32 block, bool valid) {
            const int j = i / kRuns, d = i % kRuns * kRun, to = place(kKeys, j, d);
            const Kv *key_row = rows.key(block, position), *from = rows.value(block, position);
            if (d == 0 && valid) rows.check_key(block, position), rows.check_value(block, position);
            if constexpr (kScaled) {
                Kv *to_key = copied + j * kHeadDim,
                   *to_value = copied + kKeys * kHeadDim + j * kVHeadDim;
                if (d < kHeadDim) async_copy<kBytes>(to_key + d, key_row + d, valid);
                if (d < kVHeadDim) async_copy<kBytes>(to_value + d, from + d, valid);
                if (d > 0) return;
                float* to_scale = scales + half * 2 * kKeys + j;
                async_copy<4>(to_scale, rows.key_scale(block, position), valid);
                async_copy<4>(to_scale + kKeys, rows.value_scale(block, position), valid);
            } else {
                if (d < kHeadDim) async_copy<kBytes>(keys(half) + to, key_row + d, valid);
                if (d < kVHeadDim) async_copy<kBytes>(values(half) + to, from + d, valid);
            }
        };
        stage_rows<kKeys * kRuns, kThreads>(rows, key, end, [](int i) { return i / kRuns; }, copy);
        async_commit();
    }

    // What was copied, as the products take it.
    DEVICE void widen() {
        widen_rows<kHeadDim>(keys(0), copied);
        widen_rows<kVHeadDim>(values(0), copied + kKeys * kHeadDim);
    }
    template <int kFeatures>
    static DEVICE void widen_rows(T* to, const Kv* from) {
        constexpr int kRuns = kFeatures / kRun;
        for (int i = thread_x(); i < kKeys * kRuns; i += kThreads)
            store_vector(to + place(kKeys, i / kRuns, i % kRuns * kRun),
                         load_staged<kRun>(from + i * kRun));
    }

    // Scores of this warpgroup's queries for the staged keys, then the running softmax, then its
    // product.
    DEVICE void take(i64 key, int half) {
        Scores s;
        score(s, half);
        WarpgroupFragment<T> weights[kKeys / 16];
        soften(s, key, half, weights);
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k) weights[k].hold();
#pragma unroll
        for (int n = 0; n < kSums; ++n) sum[n].hold();
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k)
#pragma unroll
            for (int n = 0; n < kSums; ++n) {
                T* right = values(half) + (n * kWidth * kKeys + k * 16 * kPanel);
                wgmma<T>(sum[n], weights[k],
                         O::transposed(shared_address(right), kKeys * O::kRowBytes));
            }
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int n = 0; n < kSums; ++n) sum[n].hold();
    }

    DEVICE void score(Scores& s, int half) const {
        s.clear();
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kDim; k += 16) {
            int d = k % kPanel, panel = k / kPanel * kPanel;
            T* left = queries + panel * kQueries + my_group() * kPanel + d;
            T* right = keys(half) + panel * kKeys + d;
            wgmma<T>(s, O::descriptor(shared_address(left)), O::descriptor(shared_address(right)));
        }
        wgmma_commit();
        wgmma_wait<0>();
        s.hold();
    }

    // Probabilities, lifted, before division by their total, which keeps up with them as the sums
    // do.
    DEVICE void soften(const Scores& s, i64 key, int half, WarpgroupFragment<T>* weights) {
        float p[Scores::kC], next[kRowSlots], keep[kRowSlots], base[kRowSlots];
        int from[kRowSlots], to[kRowSlots];
#pragma unroll
        for (int r = 0; r < kRowSlots; ++r) {
            next[r] = -kInfinity;
            from[r] = C::kWindow > 0 ? int(max<i64>(first[r] - key, 0)) : 0;
            to[r] = int(min<i64>(last[r] - key, kKeys));
        }
#pragma unroll
        for (int i = 0; i < Scores::kC; ++i) {
            int r = row_slot(i), k = c_col(i);
            float dot = s.at(i);
            if constexpr (kScaled) dot *= key_scales(half)[k];
            p[i] = k >= from[r] && k < to[r] ? capped<C>(dot) : -kInfinity;
            next[r] = max(next[r], p[i]);
        }
#pragma unroll
        for (int r = 0; r < kRowSlots; ++r) {
            next[r] = max(top[r], group_max<kRowLanes>(next[r]));
            base[r] = next[r] == -kInfinity ? 0.0f : next[r];  // no key so far
            keep[r] = exp2(top[r] - base[r]);
            base[r] -= kLift<T>;
            top[r] = next[r];
            total[r] *= keep[r];
        }
        if constexpr (kScaled) {
            const float smaller = value_unit.take(value_scales(half));
#pragma unroll
            for (int r = 0; r < kRowSlots; ++r) keep[r] *= smaller;
        }
#pragma unroll
        for (int i = 0; i < Scores::kC; ++i) {
            const bool seen = p[i] != -kInfinity;
            p[i] = exp2(p[i] - base[row_slot(i)]);
            total[row_slot(i)] += p[i];
            if constexpr (kScaled)
                p[i] = value_unit.weight(p[i], value_scales(half)[c_col(i)], seen);
        }
#pragma unroll
        for (int i = 0; i < Scores::kC / 2; ++i) weights[i / 4].set(i % 4, p[2 * i], p[2 * i + 1]);
#pragma unroll
        for (int n = 0; n < kSums; ++n)
#pragma unroll
            for (int i = 0; i < Sum::kC; ++i) sum[n].v[i] *= keep[row_slot(i)];
    }

    DEVICE void write(X* out, int tokens) {
#pragma unroll
        for (int r = 0; r < kRowSlots; ++r) {
            total[r] = reciprocal(group_sum<kRowLanes>(total[r]));
            if constexpr (kScaled) total[r] *= value_unit.unit;
        }
#pragma unroll
        for (int n = 0; n < kSums; ++n)
#pragma unroll
            for (int i = 0; i < Sum::kC; i += 2) {
                int row = c_row(i), d = n * kWidth + c_col(i);
                if (row >= tokens || d >= kVHeadDim) continue;
                float by = total[row_slot(i)];
                Floats<2> pair{{sum[n].at(i) * by, sum[n].at(i + 1) * by}};
                write_run<2>(out + i64(row) * (C::kQHeads * kVHeadDim) + d, pair);
            }
    }
};

template <class C>
DEVICE void attention_warpgroups(const AttentionArgs<C>& a) {
    using P = WarpgroupAttention<C>;
    static_assert(P::kSharedBytes <= C::kSharedBytes, "the tile claims what the kernel uses");
    DYNAMIC_SHARED(typename P::T, shared);
    const PrefillWork<C> work(a);
    if (work.tokens == 0) return;
    P p(shared);
    p.stage(work.rows, work.begin, work.end, 0);
    p.start(work.q(a), work.tokens, a.positions + work.t0);
    bool mine = P::my_group() < work.tokens;
    int half = 0;
    for (int key = work.begin; key < work.end; key += P::kKeys) {
        async_wait<0>();
        if constexpr (P::kScaled) {
            barrier();
            p.widen();
        }
        async_fence();
        barrier();
        if (key + P::kKeys < work.end) p.stage(work.rows, key + P::kKeys, work.end, 1 - half);
        if (mine) p.take(key, half);
        half = 1 - half;
    }
    if (mine) p.write(work.out(a), work.tokens);
}

}  // namespace cleave

#endif
