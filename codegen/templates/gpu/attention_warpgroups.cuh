// SPDX-License-Identifier: Apache-2.0
// Attention of many tokens by warpgroups (wgmma): as attention_prefill.cuh, but a warpgroup owns 64
// queries, and while it works on kKeys keys, the next ones are copied into the other half of shared
// memory; one barrier for each (attend_ahead). Everything there is in panels of 64 features, [rows,
// 64] each, swizzled as WgmmaOperand has it: scores are products of queries and keys as they are;
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
        constexpr int kRuns = kDim / kRun, kCount = kQueries * kRuns;
#pragma unroll turns(4)
        for (int n = 0; n < ceil_div(kCount, kThreads); ++n) {
            const int i = thread_x() + n * kThreads, t = i / kRuns, d = i % kRuns * kRun;
            if (kCount % kThreads != 0 && i >= kCount) break;
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

    // Of 8 bits: keys and values [key, key + kKeys), zero from `end` on; their scales to a half.
    DEVICE void stage(const Rows& rows, int key, int end, int half) {
        constexpr int kRuns = max(kHeadDim, kVHeadDim) / kRun, kBytes = kRun * int(sizeof(Kv));
        auto copy = [&](int i, int position, i32 block, bool valid) {
            const int j = i / kRuns, d = i % kRuns * kRun;
            const Kv *key_row = rows.key(block, position), *from = rows.value(block, position);
            if (d == 0 && valid) rows.check_key(block, position), rows.check_value(block, position);
            Kv *to_key = copied + j * kHeadDim,
               *to_value = copied + kKeys * kHeadDim + j * kVHeadDim;
            if (d < kHeadDim) async_copy<kBytes>(to_key + d, key_row + d, valid);
            if (d < kVHeadDim) async_copy<kBytes>(to_value + d, from + d, valid);
            if (d > 0) return;
            float* to_scale = scales + half * 2 * kKeys + j;
            async_copy<4>(to_scale, rows.key_scale(block, position), valid);
            async_copy<4>(to_scale + kKeys, rows.value_scale(block, position), valid);
        };
        stage_rows<kKeys * kRuns, kThreads>(rows, key, end, [](int i) { return i / kRuns; }, copy);
        async_commit();
    }
    // Blocks of the cache that hold positions [key, key + kKeys), of which `key` begins one; behind
    // `end` the last again.
    struct Blocks {
        i32 id[kKeys / kKvBlock];
    };
    static DEVICE Blocks blocks_of(const PrefillWork<C>& work, int key) {
        Blocks blocks;
#pragma unroll
        for (int b = 0; b < kKeys / kKvBlock; ++b)
            blocks.id[b] = work.rows.block(min(key + b * kKvBlock, work.end - 1));
        return blocks;
    }
    // Keys (values) [key, key + kKeys) to a half, zero where nobody sees them; the caller commits.
    DEVICE void stage_keys(const PrefillWork<C>& work, const Blocks& blocks, int key, int half) {
        stage_blocks<kHeadDim>(
            work, key, keys(half), [&](int b, int j) { return work.rows.key(blocks.id[b], j); },
            [&](int b, int j) { work.rows.check_key(blocks.id[b], j); });
    }
    DEVICE void stage_values(const PrefillWork<C>& work, const Blocks& blocks, int key, int half) {
        stage_blocks<kVHeadDim>(
            work, key, values(half), [&](int b, int j) { return work.rows.value(blocks.id[b], j); },
            [&](int b, int j) { work.rows.check_value(blocks.id[b], j); });
    }
    template <int kFeatures, class Row, class Check>
    static DEVICE void stage_blocks(const PrefillWork<C>& work, int key, T* to, const Row& row,
                                    const Check& check) {
        constexpr int kRuns = kFeatures / kRun, kCount = kKvBlock * kRuns;
#pragma unroll
        for (int n = 0; n < ceil_div(kCount, kThreads); ++n) {
            const int i = thread_x() + n * kThreads, j = i / kRuns, d = i % kRuns * kRun;
            if (kCount % kThreads != 0 && i >= kCount) break;
            T* place_of_first = to + place(kKeys, j, d);
#pragma unroll
            for (int b = 0; b < kKeys / kKvBlock; ++b) {
                const int position = key + b * kKvBlock + j;
                const bool seen = position >= work.begin && position < work.end;
                if (d == 0 && seen) check(b, j);
                async_copy<16>(place_of_first + b * kKvBlock * kPanel, row(b, j) + d, seen);
            }
        }
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

    using Weights = WarpgroupFragment<T>[kKeys / 16];

    // Before products are begun: what they read and add to is in its registers. ptxas would wait
    // for each product where it saw them written between two.
    DEVICE void begin(Weights& weights) {
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k) weights[k].hold();
        hold_sums();
        wgmma_fence();
    }
    // The scores of this warpgroup's queries for the keys of a half.
    DEVICE void score(Scores& s, int half) const {
        // Addresses are in units of 16 bytes; none of these sums overflows their field.
        const u64 left = O::descriptor(shared_address(queries) + my_group() * O::kRowBytes),
                  right = O::descriptor(shared_address(keys(half)));
#pragma unroll
        for (int k = 0; k < kDim; k += 16) {
            const int chunk = k % kPanel / 8, panel = k / kPanel * (O::kRowBytes / 16);
            wgmma<T>(s, left + u64(panel * kQueries + chunk), right + u64(panel * kKeys + chunk));
        }
        wgmma_commit();
    }
    // Adds the values of a half, weighted.
    DEVICE void add_values(const Weights& weights, int half) {
        const u64 right = O::transposed(shared_address(values(half)), kKeys * O::kRowBytes);
#pragma unroll
        for (int k = 0; k < kKeys / 16; ++k)
#pragma unroll
            for (int n = 0; n < kSums; ++n)
                wgmma<T>(sum[n], weights[k],
                         right + u64((n * kWidth * kKeys + k * 16 * kPanel) / 8));
        wgmma_commit();
    }
    DEVICE void hold_sums() {
#pragma unroll
        for (int n = 0; n < kSums; ++n) sum[n].hold();
    }
    DEVICE void scale_sums(const float (&by)[kRowSlots]) {
#pragma unroll
        for (int n = 0; n < kSums; ++n)
#pragma unroll
            for (int i = 0; i < Sum::kC; ++i) sum[n].v[i] *= by[row_slot(i)];
    }

    // Scores that are multiplied by a number alone are so where 2 is raised to them.
    static constexpr bool kPlain = !kScaled && C::kSoftcap == 0.0f && C::kScale > 0.0f;
    static constexpr float kUnit = kPlain ? C::kScale * kLog2E : 1.0f;

    // Scores to probabilities, lifted, before division by their total, which keeps up with them as
    // the sums do; `keep`: what sums so far are to be multiplied by.
    DEVICE void soften(Scores& s, i64 key, int half, float (&keep)[kRowSlots]) {
        float next[kRowSlots], base[kRowSlots];
        int from[kRowSlots], to[kRowSlots];
        bool sees_all = true;
#pragma unroll
        for (int r = 0; r < kRowSlots; ++r) {
            next[r] = -kInfinity;
            from[r] = C::kWindow > 0 ? int(max<i64>(first[r] - key, 0)) : 0;
            to[r] = int(min<i64>(last[r] - key, kKeys));
            sees_all = sees_all && from[r] == 0 && to[r] == kKeys;
        }
        if constexpr (!kPlain) {
#pragma unroll
            for (int i = 0; i < Scores::kC; ++i)
                s.v[i] = capped<C>(kScaled ? s.v[i] * key_scales(half)[c_col(i)] : s.v[i]);
        }
        if (!sees_all) {
#pragma unroll
            for (int i = 0; i < Scores::kC; ++i) {
                const int r = row_slot(i), k = c_col(i);
                s.v[i] = k >= from[r] && k < to[r] ? s.v[i] : -kInfinity;
            }
        }
#pragma unroll
        for (int i = 0; i < Scores::kC; ++i) next[row_slot(i)] = larger(next[row_slot(i)], s.v[i]);
#pragma unroll
        for (int r = 0; r < kRowSlots; ++r) {
            next[r] = larger(top[r], group_max<kRowLanes>(next[r]) * kUnit);
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
            const bool seen = s.v[i] != -kInfinity;
            float p = exp2(fma(s.v[i], kUnit, -base[row_slot(i)]));
            total[row_slot(i)] += p;
            if constexpr (kScaled) p = value_unit.weight(p, value_scales(half)[c_col(i)], seen);
            s.v[i] = p;
        }
    }
    static DEVICE void narrow(const Scores& s, Weights& weights) {
#pragma unroll
        for (int i = 0; i < Scores::kC / 2; ++i)
            weights[i / 4].set(i % 4, s.v[2 * i], s.v[2 * i + 1]);
    }

    // Of 8 bits: scores, probabilities and their product, one after the other.
    DEVICE void take(i64 key, int half) {
        Scores s;
        Weights weights;
        float keep[kRowSlots];
        s.clear();
        wgmma_fence();
        score(s, half);
        wgmma_wait<0>();
        s.hold();
        soften(s, key, half, keep);
        narrow(s, weights);
        scale_sums(keep);
        begin(weights);
        add_values(weights, half);
        wgmma_wait<0>();
        hold_sums();
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

// Of 8 bits, by one half of widened keys and values; the first are on their way.
template <class C>
DEVICE void attend_to_widened(WarpgroupAttention<C>& p, const PrefillWork<C>& work, bool mine) {
    using P = WarpgroupAttention<C>;
    int half = 0;
    for (int key = work.begin; key < work.end; key += P::kKeys) {
        async_wait<0>();
        barrier();
        p.widen();
        async_fence();
        barrier();
        if (key + P::kKeys < work.end) p.stage(work.rows, key + P::kKeys, work.end, 1 - half);
        if (mine) p.take(key, half);
        half = 1 - half;
    }
}

// Scores of keys are computed while probabilities of those before them still meet their values:
// both products run beside the copies of further keys and beside the exponentials (Shah et al.,
// "FlashAttention-3", 3.2). Values arrive a step after their keys, whose first are on their way.
// Warpgroups without tokens compute, too: ptxas waits for each product that is in a branch.
template <class C>
DEVICE void attend_ahead(WarpgroupAttention<C>& p, const PrefillWork<C>& work) {
    using P = WarpgroupAttention<C>;
    typename P::Scores s;
    typename P::Weights weights;
    float keep[P::kRowSlots];
    const auto arrive = [] {
        async_wait<0>();
        async_fence();
        barrier();
    };
    // While the products of this step run: its values, and the keys of the next. Blocks are looked
    // up a step before they are copied.
    const int begin = work.begin / kKvBlock * kKvBlock;
    typename P::Blocks of_values = P::blocks_of(work, begin),
                       of_keys = P::blocks_of(work, begin + P::kKeys);
    const auto stage_behind = [&](int key, int half) {
        const typename P::Blocks ahead = P::blocks_of(work, key + 2 * P::kKeys);
        p.stage_values(work, of_values, key, half);
        if (key + P::kKeys < work.end) p.stage_keys(work, of_keys, key + P::kKeys, 1 - half);
        async_commit();
        of_values = of_keys;
        of_keys = ahead;
    };
    arrive();
    s.clear();
    wgmma_fence();
    p.score(s, 0);
    stage_behind(begin, 0);
    wgmma_wait<0>();
    s.hold();
    p.soften(s, begin, 0, keep);
    // The wait begins a step: at the end of one, ptxas moves it in front of the exponentials.
    const auto settle = [&] {
        wgmma_wait<0>();
        p.hold_sums();
        p.narrow(s, weights);
        arrive();
    };
    int half = 0;
    for (int key = begin + P::kKeys; key < work.end; key += P::kKeys) {
        half = 1 - half;
        settle();
        s.clear();
        wgmma_fence();
        p.score(s, half);
        p.scale_sums(keep);
        p.begin(weights);
        p.add_values(weights, 1 - half);
        stage_behind(key, half);
        wgmma_wait<1>();
        s.hold();
        p.soften(s, key, half, keep);
    }
    settle();
    p.scale_sums(keep);
    p.begin(weights);
    p.add_values(weights, half);
    wgmma_wait<0>();
    p.hold_sums();
}

template <class C>
DEVICE void attention_warpgroups(const AttentionArgs<C>& a) {
    using P = WarpgroupAttention<C>;
    static_assert(P::kSharedBytes <= C::kSharedBytes, "the tile claims what the kernel uses");
    DYNAMIC_SHARED(typename P::T, shared);
    const PrefillWork<C> work(a);
    if (work.tokens == 0) return;
    P p(shared);
    if constexpr (P::kScaled) {
        p.stage(work.rows, work.begin, work.end, 0);
    } else {
        const int begin = work.begin / kKvBlock * kKvBlock;
        p.stage_keys(work, P::blocks_of(work, begin), begin, 0);
        async_commit();
    }
    p.start(work.q(a), work.tokens, a.positions + work.t0);
    const bool mine = P::my_group() < work.tokens;
    if constexpr (P::kScaled)
        attend_to_widened(p, work, mine);
    else
        attend_ahead(p, work);
    if (mine) p.write(work.out(a), work.tokens);
}

}  // namespace cleave

#endif
