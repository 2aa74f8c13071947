// SPDX-License-Identifier: Apache-2.0
// Attention of many tokens (prefill): a block takes up to kQueries neighbouring tokens of one
// sequence and one query head, and streams the keys and values that they see through shared memory,
// kKeys at a time, once for all of them; a warp owns 16 queries and keeps their sums and softmax in
// registers (Dao, "FlashAttention-2", arXiv 2307.08691). Products are 16 x 16 tiles in the cache's
// type, or in f16 where the cache has 8 bits: scales of keys multiply scores, and those of values
// the weights. Values are staged transposed, so that both products read rows.
//
// Config: as attention_decode.cuh's, kQueries, kKeys (multiples of 16) in place of its last four.
// Grid: tiles of kQueries over all sequences from num_singles on, times kQHeads; sequences that end
// within a tile leave blocks without work.
#pragma once

#include "attention.cuh"
#include "tile.cuh"

namespace cleave {

template <class C>
struct PrefillTile {
    using Kv = typename C::Kv;
    using T = typename KvElement<Kv>::Staged;
    using Rows = KvRows<C, const Kv>;
    using M = MatrixTile<T>;
    static constexpr int kQueries = int(C::kQueries), kKeys = int(C::kKeys);
    static constexpr int kThreads = int(C::kThreads);
    static constexpr int kHeadDim = int(C::kHeadDim), kVHeadDim = int(C::kVHeadDim);
    static constexpr int kDim = round_up(kHeadDim, 16), kVDim = round_up(kVHeadDim, 16);
    static constexpr int kStride = kDim + row_padding<T>();    // of queries and keys
    static constexpr int kVStride = kKeys + row_padding<T>();  // of values and probabilities
    static constexpr bool kScaled = KvElement<Kv>::kScaled;
    static constexpr i64 kSharedBytes =
        (i64(kQueries + kKeys) * kStride + i64(kVDim + kQueries) * kVStride) * i64(sizeof(T)) +
        (kScaled ? 8 * kKeys : 0);
    static_assert(kThreads == kQueries / 16 * WARP);
    // Steps of depth side by side. AMD's compiler loads for all of them first, which is more than
    // the registers hold where multiply-adds take 16 floats for each tile (gfx906: 256 registers
    // and 95 in memory, against 102).
#if defined(CLEAVE_HIP)
    static constexpr int kInFlight = M::kDepth < 16 ? 1 : 2;
#else
    static constexpr int kInFlight = turns(2);
#endif
    static constexpr int kWidth = kv_width<Kv>(kHeadDim), kVWidth = kv_width<Kv>(kVHeadDim);
    static constexpr int kXWidth = load_width<float>(kHeadDim);

    T* queries;  // [kQueries, kStride]
    T* keys;     // [kKeys, kStride]
    T* values;   // [kVDim, kVStride]: transposed
    T* weights;  // [kQueries, kVStride]: of this tile's keys, lifted, before division by their
                 // total
    float *key_scales, *value_scales;  // [kKeys], where elements have scales
    ValueScales<C> value_unit;
    typename M::C sum[kVDim / 16];
    float top[M::kRowSlots], total[M::kRowSlots];
    i64 first[M::kRowSlots], last[M::kRowSlots];  // keys that the row sees: [first, last)

    DEVICE explicit PrefillTile(T* shared)
        : queries(shared),
          keys(queries + kQueries * kStride),
          values(keys + kKeys * kStride),
          weights(values + kVDim * kVStride),
          key_scales(reinterpret_cast<float*>(weights + kQueries * kVStride)),
          value_scales(key_scales + kKeys) {}

    static DEVICE int my_row() { return warp() * 16; }

    DEVICE void start(const typename C::X* q, int tokens, const i32* positions) {
        for (int i = thread_x(); i < kQueries * (kHeadDim / kXWidth); i += kThreads) {
            int t = i / (kHeadDim / kXWidth), d = i % (kHeadDim / kXWidth) * kXWidth;
            Floats<kXWidth> v = load_floats<kXWidth, int(C::kXAlign)>(
                q + i64(min(t, tokens - 1)) * C::kQStride + d);
            store_floats<kXWidth>(queries + t * kStride + d, v);
        }
        // What the tiles are longer than a head reads as zero.
        if constexpr (kDim > kHeadDim) {
            constexpr int kMore = kDim - kHeadDim;
            for (int i = thread_x(); i < (kQueries + kKeys) * kMore; i += kThreads)
                queries[i / kMore * kStride + kHeadDim + i % kMore] = T{};
        }
        if constexpr (kVDim > kVHeadDim) {
            for (int i = thread_x(); i < (kVDim - kVHeadDim) * kKeys; i += kThreads)
                values[(kVHeadDim + i / kKeys) * kVStride + i % kKeys] = T{};
        }
#pragma unroll
        for (int n = 0; n < kVDim / 16; ++n) sum[n] = M::zero();
#pragma unroll
        for (int i = 0; i < M::kC; ++i) {
            int r = M::row_slot(i), row = my_row() + M::c_row(lane(), i);
            last[r] = row < tokens ? i64(positions[row]) + 1 : 0;
            first[r] = C::kWindow > 0 ? last[r] - C::kWindow : 0;
            top[r] = -kInfinity;
            total[r] = 0.0f;
        }
    }

    // Keys and values [key, key + kKeys), zero from `end` on.
    DEVICE void stage(const Rows& rows, int key, int end) {
        constexpr int kRuns = kHeadDim / kWidth, kVRuns = kVHeadDim / kVWidth;
        auto copy_key = [&](int i, int position, i32 block, bool valid) {
            const int j = i / kRuns, d = i % kRuns * kWidth;
            const Kv* row = rows.key(block, position);
            if (d == 0 && valid) rows.check_key(block, position);
            constexpr int kBytes = kWidth * int(sizeof(T));
            if constexpr (kScaled) {
                if (d == 0) async_copy<4>(key_scales + j, rows.key_scale(block, position), valid);
                const Vector<T, kWidth> v = load_staged<kWidth>(row + d);
                store_vector(keys + j * kStride + d, valid ? v : Vector<T, kWidth>{});
            } else if constexpr (kBytes >= 4) {
                async_copy<kBytes>(keys + j * kStride + d, row + d, valid);
            } else {
                keys[j * kStride + d] = valid ? row[d] : T{};
            }
        };
        auto copy_value = [&](int i, int position, i32 block, bool valid) {
            const int j = i % kKeys, d = i / kKeys * kVWidth;
            const Kv* row = rows.value(block, position);
            if (d == 0) rows.check_value(block, position);
            if constexpr (kScaled)
                if (d == 0)
                    async_copy<4>(value_scales + j, rows.value_scale(block, position), valid);
            const Vector<T, kVWidth> v = load_staged<kVWidth>(row + d);
#pragma unroll
            for (int n = 0; n < kVWidth; ++n) values[(d + n) * kVStride + j] = valid ? v[n] : T{};
        };
        stage_rows<kKeys * kRuns, kThreads>(
            rows, key, end, [](int i) { return i / kRuns; }, copy_key);
        async_commit();
        stage_rows<kKeys * kVRuns, kThreads>(
            rows, key, end, [](int i) { return i % kKeys; }, copy_value);
        if constexpr (kScaled) async_commit();
        async_wait<0>();
    }

    // Scores of this warp's queries for the staged keys, then the running softmax.
    DEVICE void score(i64 key) {
        typename M::C s[kKeys / 16];
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n) s[n] = M::zero();
#pragma unroll kInFlight
        for (int k = 0; k < kDim; k += M::kDepth) {
            typename M::A a = M::load_a(queries + my_row() * kStride + k, kStride);
#pragma unroll
            for (int n = 0; n < kKeys / 16; ++n)
                M::multiply(s[n], a, M::load_b(keys + n * 16 * kStride + k, kStride));
        }
        float next[M::kRowSlots];
#pragma unroll
        for (int r = 0; r < M::kRowSlots; ++r) next[r] = -kInfinity;
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n)
#pragma unroll
            for (int i = 0; i < M::kC; ++i) {
                i64 k = key + n * 16 + M::c_col(lane(), i);
                int r = M::row_slot(i);
                if constexpr (kScaled) s[n].v[i] *= key_scales[n * 16 + M::c_col(lane(), i)];
                s[n].v[i] = k >= first[r] && k < last[r] ? capped<C>(s[n].v[i]) : -kInfinity;
                next[r] = max(next[r], s[n].v[i]);
            }
        float keep[M::kRowSlots];
#pragma unroll
        for (int r = 0; r < M::kRowSlots; ++r) {
            next[r] = max(top[r], group_max<M::kRowLanes>(next[r]));
            keep[r] = rescale(top[r], next[r]);
            top[r] = next[r];
            total[r] *= keep[r];
        }
        if constexpr (kScaled) {
            const float smaller = value_unit.take(value_scales);
#pragma unroll
            for (int r = 0; r < M::kRowSlots; ++r) keep[r] *= smaller;
        }
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n)
#pragma unroll
            for (int i = 0; i < M::kC; ++i) {
                const int column = n * 16 + M::c_col(lane(), i);
                float p = rescale(s[n].v[i], top[M::row_slot(i)] - kLift<T>);
                total[M::row_slot(i)] += p;
                if constexpr (kScaled)
                    p = value_unit.weight(p, value_scales[column], s[n].v[i] != -kInfinity);
                weights[(my_row() + M::c_row(lane(), i)) * kVStride + column] = from_float<T>(p);
            }
#pragma unroll
        for (int n = 0; n < kVDim / 16; ++n)
#pragma unroll
            for (int i = 0; i < M::kC; ++i) sum[n].v[i] *= keep[M::row_slot(i)];
    }

    DEVICE void accumulate() {
#pragma unroll kInFlight
        for (int k = 0; k < kKeys; k += M::kDepth) {
            typename M::A a = M::load_a(weights + my_row() * kVStride + k, kVStride);
#pragma unroll
            for (int n = 0; n < kVDim / 16; ++n)
                M::multiply(sum[n], a, M::load_b(values + n * 16 * kVStride + k, kVStride));
        }
    }

    DEVICE void write(typename C::X* out, int tokens) {
#pragma unroll
        for (int r = 0; r < M::kRowSlots; ++r)
            total[r] = reciprocal(group_sum<M::kRowLanes>(total[r]));
        if constexpr (kScaled) {
#pragma unroll
            for (int r = 0; r < M::kRowSlots; ++r) total[r] *= value_unit.unit;
        }
#pragma unroll
        for (int n = 0; n < kVDim / 16; ++n)
#pragma unroll
            for (int i = 0; i < M::kC; ++i) {
                int row = my_row() + M::c_row(lane(), i), d = n * 16 + M::c_col(lane(), i);
                if (row < tokens && d < kVHeadDim)
                    out[row * (C::kQHeads * kVHeadDim) + d] =
                        from_float<typename C::X>(sum[n].v[i] * total[M::row_slot(i)]);
            }
    }
};

template <class C>
DEVICE void attention_prefill(const AttentionArgs<C>& a) {
    using P = PrefillTile<C>;
    static_assert(P::kSharedBytes <= C::kSharedBytes, "the tile claims what the kernel uses");
    DYNAMIC_SHARED(typename P::T, shared);
    const PrefillWork<C> work(a);
    if (work.tokens == 0) return;
    P p(shared);
    p.start(work.q(a), work.tokens, a.positions + work.t0);
    bool mine = P::my_row() < work.tokens;
    for (int key = work.begin; key < work.end; key += P::kKeys) {
        p.stage(work.rows, key, work.end);
        barrier();
        if (mine) {
            p.score(key);
            warp_sync();
            p.accumulate();
        }
        if (key + P::kKeys < work.end) {
            barrier();
        }
    }
    if (mine) p.write(work.out(a), work.tokens);
}

}  // namespace cleave
