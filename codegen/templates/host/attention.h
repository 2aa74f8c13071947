// SPDX-License-Identifier: Apache-2.0
// Causal attention over the cache, with grouped queries, sliding window and soft cap; softmax is taken online,
// block by block of keys (Milakov and Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135). Up to
// kQueries queries that read the same keys go together: heads of one group at one token (decode), or
// neighbouring tokens of one head (prefill).
// Config: kHeadDim, kVHeadDim, kQHeads, kFirstHead (number of the first), kGroup (query heads of a KV
// head), kSlabHeads, kSlabOffset (number of its first KV head), kScale, kWindow (0: none),
// kSoftcap (0: none), Kv, kQStride, kQOffset, kByToken; by token: kNumParts and kPartBegin[kNumParts + 1], the
// heads of each item; otherwise: kItemQueries, how many of the [heads, tokens] queries an item takes.
#pragma once

#include "kv_cache.h"
#include "math.h"

namespace cleave {

template <class Config>
struct AttentionArgs {
    const float* q;  // [tokens, kQStride], columns from kQOffset
    const typename Config::Kv* kv;
    i64 num_slots, context;
    float* out;            // [tokens, kQHeads * kVHeadDim]
    const i32* positions;  // [tokens]
    const i32* slots;      // [tokens]
    i64 num_tokens;
};

inline constexpr i64 kQueries = 4;

template <class Config>
struct AttentionTile {
    using C = Config;
    static constexpr i64 N = width_for(C::kHeadDim);    // lanes along a key
    static constexpr i64 VN = width_for(C::kVHeadDim);  // lanes along a value
    static constexpr i64 kKeys = 64;                    // of a block
    static_assert(N >= 2 && VN >= 2, "head sizes are even");

    alignas(64) float q[kQueries][C::kHeadDim];
    alignas(64) float acc[kQueries][C::kVHeadDim];
    alignas(64) float score[kQueries][kKeys];
    float top[kQueries], total[kQueries];
    i64 first[kQueries], last[kQueries];  // keys that the query sees: [first, last)
    float* out[kQueries];
    i64 count = 0;

    CLEAVE_INLINE void add(const float* source, float* destination, i64 position) {
        for (i64 i = 0; i < C::kHeadDim; ++i) q[count][i] = source[i] * C::kScale;
        for (i64 i = 0; i < C::kVHeadDim; ++i) acc[count][i] = 0.0f;
        top[count] = -__builtin_inff();
        total[count] = 0.0f;
        last[count] = position + 1;
        first[count] = C::kWindow > 0 ? max(0, position + 1 - C::kWindow) : 0;
        out[count++] = destination;
    }

    // Scores of N keys; keys past `valid` repeat the last one and are masked later. The first query of a tile
    // asks for the next block's keys: the cache is read once, and no hardware prefetcher follows N rows.
    template <bool kPrefetch, class T>
    CLEAVE_INLINE FloatN<N> score_keys(const float* query, const T* keys, i64 valid) const {
        FloatN<N> sums[N];
        const T* row[N];
#pragma clang loop unroll(full)
        for (i64 j = 0; j < N; ++j) {
            row[j] = keys + min(j, valid - 1) * C::kHeadDim;
            sums[j] = 0.0f;
        }
        for (i64 d = 0; d < C::kHeadDim; d += N) {
            FloatN<N> x = load<N>(query + d);
#pragma clang loop unroll(full)
            for (i64 j = 0; j < N; ++j) {
                if constexpr (kPrefetch) __builtin_prefetch(row[j] + d + kKeys * C::kHeadDim, 0, 2);
                sums[j] += x * load<N>(row[j] + d);
            }
        }
        return sum_each<N>(sums);
    }

    // Hides the scores outside [first, last) and past n, so that whole vectors can follow: what is not seen weighs 0.
    CLEAVE_INLINE void mask(i64 i, i64 key, i64 n) {
        const float kMinus = -__builtin_inff();
        const i64 begin = max(first[i] - key, 0), end = min(last[i] - key, n);
        for (i64 j = 0; j < begin; ++j) score[i][j] = kMinus;
        for (i64 j = max(end, 0); j < kKeys; ++j) score[i][j] = kMinus;
    }

    // Scores of query i for keys [key, key + n), capped, masked; then the running softmax. The whole block goes
    // through the softmax, kLanes at a time whatever the head's width: the exponential is most of a small head's cost.
    template <bool kPrefetch, class T>
    CLEAVE_INLINE void attend(i64 i, const T* keys, i64 key, i64 n) {
        const float kMinus = -__builtin_inff();
        for (i64 j = 0; j < n; j += N) {
            FloatN<N> s = score_keys<kPrefetch>(q[i], keys + j * C::kHeadDim, n - j);
            if constexpr (C::kSoftcap > 0.0f) s = tanh<N>(s * (1.0f / C::kSoftcap)) * C::kSoftcap;
            store<N>(score[i] + j, s);
        }
        if (n < kKeys || first[i] > key || last[i] < key + kKeys) mask(i, key, n);
        Vec best = kMinus;
#pragma clang loop unroll(full)
        for (i64 j = 0; j < kKeys; j += kLanes) {
            Vec s = load(score[i] + j);
            best = s > best ? s : best;
        }
        float peak = maximum(best);
        float next = peak > top[i] ? peak : top[i];
        if (next == kMinus) {
            for (i64 j = 0; j < kKeys; j += kLanes) store(score[i] + j, Vec(0.0f));
            return;
        }
        FloatN<2> rescale = exp<2>(FloatN<2>(top[i] - next));
        Vec sums = 0.0f;
#pragma clang loop unroll(full)
        for (i64 j = 0; j < kKeys; j += kLanes) {
            Vec s = load(score[i] + j);
            Vec p = exp<kLanes>(s - next);
            p = s == Vec(kMinus) ? Vec(0.0f) : p;
            store(score[i] + j, p);
            sums += p;
        }
        total[i] = total[i] * rescale[0] + sum(sums);
        if (next != top[i])
            for (i64 d = 0; d < C::kVHeadDim; ++d) acc[i][d] *= rescale[0];
        top[i] = next;
    }

    // acc[i] += sum over keys of score * value, kQ queries together, kChunk features at a time. Small heads have too few
    // sums to fill the multipliers' latency, so that kWays runs of keys are summed side by side.
    template <i64 kQ, class T>
    CLEAVE_INLINE void accumulate(const T* values, i64 n) {
        constexpr i64 kVectors = C::kVHeadDim / VN;
        constexpr i64 kChunk = width_for(kVectors, 4);
        constexpr i64 kWays = kQ * kChunk >= 8 ? 1 : kQ * kChunk >= 4 ? 2 : 4;
        for (i64 d = 0; d < C::kVHeadDim; d += kChunk * VN) {
            FloatN<VN> sums[kWays][kQ * kChunk];
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kQ * kChunk; ++i) {
                sums[0][i] = load<VN>(acc[i / kChunk] + d + i % kChunk * VN);
#pragma clang loop unroll(full)
                for (i64 way = 1; way < kWays; ++way) sums[way][i] = 0.0f;
            }
            i64 j = 0;
#pragma clang loop unroll(disable)
            for (; j + kWays <= n; j += kWays)
#pragma clang loop unroll(full)
                for (i64 way = 0; way < kWays; ++way)
                    add_value<kQ, kChunk>(sums[way], values, j + way, d);
            for (; j < n; ++j) add_value<kQ, kChunk>(sums[0], values, j, d);
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kQ * kChunk; ++i) {
#pragma clang loop unroll(full)
                for (i64 way = 1; way < kWays; ++way) sums[0][i] += sums[way][i];
                store<VN>(acc[i / kChunk] + d + i % kChunk * VN, sums[0][i]);
            }
        }
    }

    // sums[i] += score of key j * features [d, d + kChunk * VN) of its value.
    template <i64 kQ, i64 kChunk, class T>
    CLEAVE_INLINE void add_value(FloatN<VN>* sums, const T* values, i64 j, i64 d) const {
        FloatN<VN> v[kChunk];
#pragma clang loop unroll(full)
        for (i64 x = 0; x < kChunk; ++x) {
            const T* from = values + j * C::kVHeadDim + d + x * VN;
            if constexpr (C::kByToken) __builtin_prefetch(from + kKeys * C::kVHeadDim, 0, 2);
            v[x] = load<VN>(from);
        }
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kQ * kChunk; ++i)
            sums[i] += FloatN<VN>(score[i / kChunk][j]) * v[i % kChunk];
    }

    void run(const KvCache<const typename C::Kv>& cache, i64 slot, i64 kv_head) {
        i64 begin = first[0], end = last[0];
        for (i64 i = 1; i < count; ++i) {
            begin = min(begin, first[i]);
            end = max(end, last[i]);
        }
        for (i64 key = begin; key < end; key += kKeys) {
            i64 n = min(kKeys, end - key);
            const auto* keys = cache.key(slot, kv_head, key);
            const auto* values = cache.value(slot, kv_head, key);
            attend<C::kByToken>(0, keys, key, n);
            for (i64 i = 1; i < count; ++i) attend<false>(i, keys, key, n);
            if (count == 4) accumulate<4>(values, n);
            if (count == 3) accumulate<3>(values, n);
            if (count == 2) accumulate<2>(values, n);
            if (count == 1) accumulate<1>(values, n);
        }
        for (i64 i = 0; i < count; ++i) {
            float inverse = 1.0f / total[i];
            for (i64 d = 0; d < C::kVHeadDim; ++d) out[i][d] = acc[i][d] * inverse;
        }
        count = 0;
    }
};

template <class Config>
struct AttentionKernel {
    using C = Config;
    const AttentionArgs<C>& a;
    KvCache<const typename C::Kv> cache;
    AttentionTile<C> tile;

    CLEAVE_INLINE void add(i64 token, i64 head) {
        tile.add(a.q + token * C::kQStride + C::kQOffset + head * C::kHeadDim,
                 a.out + (token * C::kQHeads + head) * C::kVHeadDim, a.positions[token]);
    }
    static constexpr i64 kv_head(i64 head) {
        return (C::kFirstHead + head) / C::kGroup - C::kSlabOffset;
    }

    // Heads of one item at one token; they share a KV head.
    void by_token(i64 item) {
        i64 token = item / C::kNumParts, part = item % C::kNumParts;
        for (i64 head = C::kPartBegin[part]; head < C::kPartBegin[part + 1];) {
            i64 stop = min(C::kPartBegin[part + 1], head + kQueries), shared = kv_head(head);
            for (; head < stop; ++head) add(token, head);
            tile.run(cache, a.slots[token], shared);
        }
    }

    // Queries [item * kItemQueries, ...) of [heads, tokens]: runs of tokens of one head and one sequence.
    void by_head(i64 item) {
        i64 stop = min((item + 1) * C::kItemQueries, C::kQHeads * a.num_tokens);
        for (i64 i = item * C::kItemQueries; i < stop;) {
            i64 head = i / a.num_tokens, slot = a.slots[i % a.num_tokens];
            for (; i < stop && tile.count < kQueries && i / a.num_tokens == head &&
                   a.slots[i % a.num_tokens] == slot;
                 ++i)
                add(i % a.num_tokens, head);
            tile.run(cache, slot, kv_head(head));
        }
    }
};

template <class Config>
CLEAVE_INLINE void attention(const AttentionArgs<Config>& a, i64 begin, i64 end, void*) {
    KvCache<const typename Config::Kv> cache{
        a.kv, a.num_slots, a.context, Config::kSlabHeads, Config::kHeadDim, Config::kVHeadDim};
    AttentionKernel<Config> kernel{a, cache, {}};
    for (i64 item = begin; item < end; ++item) {
        if constexpr (Config::kByToken)
            kernel.by_token(item);
        else
            kernel.by_head(item);
    }
}

}  // namespace cleave
