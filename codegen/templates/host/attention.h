// SPDX-License-Identifier: Apache-2.0
// Causal attention over the cache, with grouped queries, sliding window and soft cap; softmax is
// taken online, block by block of keys (Milakov and Gimelshein, arXiv 1805.02867; Dao et al., arXiv
// 2205.14135). Up to kMostQueries queries that read the same keys go together: heads of one group
// at one token (decode), or neighbouring tokens of one head (prefill). Config: kHeadDim, kVHeadDim,
// kQHeads, kFirstHead (number of the first), kGroup (query heads of a KV head), kSlabHeads,
// kSlabOffset (number of its first KV head), kScale, kWindow (0: none), kSoftcap (0: none), Kv,
// kQStride, kQOffset, kByToken; by token: kNumParts and kPartBegin[kNumParts + 1], the heads of
// each item; otherwise: kItemQueries, how many of the [heads, tokens] queries an item takes, and
// the items of single tokens come first, by token.
#pragma once

#include "kv_cache.h"
#include "math.h"

namespace cleave {

template <class Config>
struct AttentionArgs {
    const float* q;  // [tokens, kQStride], columns from kQOffset
    const typename Config::Kv* kv;
    i64 num_blocks;
    const i32* blocks;  // [slots, blocks_per_slot]
    i64 blocks_per_slot;
    float* out;            // [tokens, kQHeads * kVHeadDim]
    const i32* positions;  // [tokens]
    const i32* slots;      // [tokens]
    i64 num_singles = 0;   // tokens in front that are alone in their sequences, of a prompt's pass
    i64 num_tokens;
};

inline constexpr i64 kMostQueries = 4;

// Queries that go together: as many heads of a token as an item has, in equal runs; or neighbouring
// tokens.
template <class Config>
constexpr i64 queries_of_tile() {
    if constexpr (Config::kByToken) {
        i64 most = 1;
        for (i64 part = 0; part < Config::kNumParts; ++part)
            most = max(most, Config::kPartBegin[part + 1] - Config::kPartBegin[part]);
        return ceil_div(most, ceil_div(most, kMostQueries));
    } else {
        return kMostQueries;
    }
}

// The cache of one head of one sequence, from a block on.
template <class C, class T>
struct KvRun {
    KvCache<C, T> cache;
    i64 kv_head;
    const i32* blocks;  // of the first keys, and so on
    i64 count;          // of blocks

    CLEAVE_INLINE T* keys(i64 i) const { return cache.keys(kv_head, blocks[i]); }
    CLEAVE_INLINE T* values(i64 i) const { return cache.values(kv_head, blocks[i]); }
    CLEAVE_INLINE const float* key_scales(i64 i) const {
        return cache.key_scales(kv_head, blocks[i]);
    }
    CLEAVE_INLINE const float* value_scales(i64 i) const {
        return cache.value_scales(kv_head, blocks[i]);
    }
};

template <class Config>
struct AttentionTile {
    using C = Config;
    static constexpr i64 kQ = queries_of_tile<C>();
    static constexpr i64 VN = width_for(C::kVHeadDim);  // lanes along a value
    static constexpr i64 kKeys = 128;  // taken together; of prefill and decode alike
    static constexpr i64 kBlocks = kKeys / kKeyBlock;
    static constexpr i64 kAhead = C::kByToken ? kBlocks : 0;  // blocks
    using Kv = typename C::Kv;
    using Run = KvRun<C, const Kv>;
    static_assert(VN >= 2, "head sizes are even");

    alignas(64) float q[kQ][C::kHeadDim];
    alignas(64) float acc[kQ][C::kVHeadDim];
    alignas(64) float score[kQ][kKeys];
    float top[kQ], total[kQ];
    i64 first[kQ], last[kQ];  // keys that the query sees: [first, last)
    float* out[kQ];
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

    // Fills a place that no query has with another's copy: its result is dropped.
    void repeat(i64 i) {
        for (i64 d = 0; d < C::kHeadDim; ++d) q[count][d] = q[i][d];
        for (i64 d = 0; d < C::kVHeadDim; ++d) acc[count][d] = 0.0f;
        top[count] = top[i];
        total[count] = 0.0f;
        last[count] = last[i];
        first[count++] = first[i];
    }

    // Scores of all queries for kCount blocks of keys from block `first` on; capped.
    template <i64 kCount>
    CLEAVE_INLINE void score_blocks(const Run& run, i64 first) {
        constexpr i64 kVectors = kCount * kKeyBlock / kLanes, kPerBlock = kKeyBlock / kLanes;
        const Kv* keys[kCount];
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kCount; ++i) keys[i] = run.keys(first + i);
        Vec sums[kQ][kVectors];
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kQ * kVectors; ++i) sums[i / kVectors][i % kVectors] = 0.0f;
#pragma clang loop unroll_count(4)
        for (i64 d = 0; d < C::kHeadDim; ++d) {
#pragma clang loop unroll(full)
            for (i64 v = 0; v < kVectors; ++v) {
                const Kv* from = keys[v / kPerBlock] + d * kKeyBlock + v % kPerBlock * kLanes;
                Vec k = load_stored(from);
#pragma clang loop unroll(full)
                for (i64 i = 0; i < kQ; ++i) sums[i][v] += k * q[i][d];
            }
        }
        if constexpr (kIsScaled<Kv>) {
#pragma clang loop unroll(full)
            for (i64 v = 0; v < kVectors; ++v) {
                const Vec scale =
                    load(run.key_scales(first + v / kPerBlock) + v % kPerBlock * kLanes);
#pragma clang loop unroll(full)
                for (i64 i = 0; i < kQ; ++i) sums[i][v] *= scale;
            }
        }
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kQ * kVectors; ++i)
            store(score[i / kVectors] + first * kKeyBlock + i % kVectors * kLanes,
                  cap(sums[i / kVectors][i % kVectors]));
    }

    template <class V>
    static CLEAVE_INLINE V cap(V s) {
        if constexpr (C::kSoftcap > 0.0f)
            return tanh<sizeof(V) / sizeof(float)>(s * (1.0f / C::kSoftcap)) * C::kSoftcap;
        else
            return s;
    }

    // Scores of all queries for keys [begin, n) of the tile. Whole blocks are read, and scores
    // outside are masked later.
    CLEAVE_INLINE void scores(const Run& run, i64 begin, i64 n) {
        constexpr i64 kTogether = max(1, min(kBlocks, 8 * kLanes / (kQ * kKeyBlock)));
        const i64 count = ceil_div(n, kKeyBlock);
        i64 i = begin / kKeyBlock;
        for (; i + kTogether <= count; i += kTogether) score_blocks<kTogether>(run, i);
        if constexpr (kTogether > 1)
            for (; i < count; ++i) score_blocks<1>(run, i);
    }

    // Hides the scores outside [first, last) among the first `count` from `key` on: what is not
    // seen weighs 0.
    CLEAVE_INLINE void mask(i64 i, i64 key, i64 count) {
        const float kMinus = -__builtin_inff();
        for (i64 j = 0; j < min(first[i] - key, count); ++j) score[i][j] = kMinus;
        for (i64 j = max(last[i] - key, 0); j < count; ++j) score[i][j] = kMinus;
    }

    // The running softmax over the scores of keys [key, key + n), in whole vectors. The queries go
    // side by side: the exponential's latency is most of a small head's cost.
    CLEAVE_INLINE void softmax(i64 key, i64 n) {
        const float kMinus = -__builtin_inff();
        const i64 whole = round_up(n, kLanes);
        Vec best[kQ], sums[kQ];
        FloatN<kMostQueries> next = kMinus, before = kMinus;
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kQ; ++i) {
            if (first[i] > key || last[i] < key + whole) mask(i, key, whole);
            best[i] = kMinus;
            sums[i] = 0.0f;
        }
        for (i64 j = 0; j < whole; j += kLanes)
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kQ; ++i) {
                Vec s = load(score[i] + j);
                best[i] = s > best[i] ? s : best[i];
            }
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kQ; ++i) {
            float peak = maximum(best[i]);
            before[i] = top[i];
            next[i] = top[i] = peak > top[i] ? peak : top[i];
        }
        // A query that has seen nothing yet has no peak; its scores are -infinity, and weigh 0 from
        // any base.
        FloatN<kMostQueries> base =
            next == FloatN<kMostQueries>(kMinus) ? FloatN<kMostQueries>(0.0f) : next;
        FloatN<kMostQueries> rescale = exp<kMostQueries>(before - base);
        for (i64 j = 0; j < whole; j += kLanes)
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kQ; ++i) {
                Vec s = load(score[i] + j);
                Vec p = exp<kLanes>(s - base[i]);
                p = s == Vec(kMinus) ? Vec(0.0f) : p;
                store(score[i] + j, p);
                sums[i] += p;
            }
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kQ; ++i) {
            const float scale = before[i] == kMinus ? 0.0f : rescale[i];
            total[i] = total[i] * scale + sum(sums[i]);
            if (before[i] != base[i])
                for (i64 d = 0; d < C::kVHeadDim; ++d) acc[i][d] *= scale;
        }
    }

    // What weighs the values of keys [key + begin, key + n) weighs their stored elements then:
    // times the value's scale, where the query sees it.
    CLEAVE_INLINE void weigh_stored(const Run& run, i64 key, i64 begin, i64 n) {
        for (i64 block = begin / kKeyBlock; block * kKeyBlock < n; ++block) {
            const float* scales = run.value_scales(block) - block * kKeyBlock;
            for (i64 i = 0; i < kQ; ++i) {
                i64 j = max(first[i] - key, block * kKeyBlock);
                const i64 stop = min(last[i] - key, (block + 1) * kKeyBlock);
                if (stop - j == kKeyBlock) {
#pragma clang loop unroll(full)
                    for (i64 x = 0; x < kKeyBlock; x += kLanes)
                        store(score[i] + j + x, load(score[i] + j + x) * load(scales + j + x));
                    continue;
                }
                for (; j < stop; ++j) score[i][j] *= scales[j];
            }
        }
    }

    // acc[i] += sum over keys [begin, n) of score * value, all queries together, kChunk features at
    // a time. Small heads have too few sums to fill the multipliers' latency: key j goes to sum
    // j % kWays. That depends on the head alone, so that a query's bits do not depend on the others
    // of its tile. Blocks are walked within a chunk: its sums stay in registers.
    CLEAVE_INLINE void accumulate(const Run& run, i64 begin, i64 n) {
        constexpr i64 kVectors = C::kVHeadDim / VN;
        constexpr i64 kChunk = width_for(kVectors, 4);
        constexpr i64 kWays = max(1, (kLanes == 16 ? 4 : 2) / kChunk);
        for (i64 d = 0; d < C::kVHeadDim; d += kChunk * VN) {
            FloatN<VN> sums[kWays][kQ * kChunk];
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kQ * kChunk; ++i) {
                sums[0][i] = load<VN>(acc[i / kChunk] + d + i % kChunk * VN);
#pragma clang loop unroll(full)
                for (i64 way = 1; way < kWays; ++way) sums[way][i] = 0.0f;
            }
            for (i64 j = begin / kWays * kWays; j < n;) {
                const i64 block = j / kKeyBlock, stop = min((block + 1) * kKeyBlock, n);
                const Kv* from = run.values(block) + d;
                const Kv* ahead = run.values(min(block + kAhead, run.count - 1)) + d;
                // Keys [key, key + kWays), without those outside [begin, n).
                auto add = [&](i64 key, bool whole) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
                    for (i64 way = 0; way < kWays; ++way)
                        if (whole || (begin <= key + way && key + way < n))
                            add_value<kChunk>(sums[way], from, ahead, key + way, block);
                };
                if (C::kByToken && stop - j == kKeyBlock && begin <= j) {
#pragma clang loop unroll_count(4)
                    for (i64 i = 0; i < kKeyBlock; i += kWays) add(j + i, true);
                    j = stop;
                    continue;
                }
                if (j < begin) {
                    add(j, false);
                    j += kWays;
                }
#pragma clang loop unroll(disable)
                for (; j + kWays <= stop; j += kWays) add(j, true);
                if (j < stop) {
                    add(j, false);
                    j = stop;
                }
            }
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kQ * kChunk; ++i) {
#pragma clang loop unroll(full)
                for (i64 way = 1; way < kWays; ++way) sums[0][i] += sums[way][i];
                store<VN>(acc[i / kChunk] + d + i % kChunk * VN, sums[0][i]);
            }
        }
    }

    // sums[i] += score of key j of the tile * features of its value, a row of the block at `from`.
    template <i64 kChunk>
    CLEAVE_INLINE void add_value(FloatN<VN>* sums, const Kv* from, const Kv* ahead, i64 j,
                                 i64 block) const {
        FloatN<VN> v[kChunk];
#pragma clang loop unroll(full)
        for (i64 x = 0; x < kChunk; ++x) {
            const i64 at = (j - block * kKeyBlock) * C::kVHeadDim + x * VN;
            if constexpr (C::kByToken) __builtin_prefetch(ahead + at, 0, 2);
            v[x] = load_stored<VN>(from + at);
        }
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kQ * kChunk; ++i)
            sums[i] += FloatN<VN>(score[i / kChunk][j]) * v[i % kChunk];
    }

    void run(const KvCache<C, const Kv>& cache, i64 slot, i64 kv_head) {
        const i64 wanted = count;
        while (count < kQ) repeat(count - 1);
        i64 begin = first[0], end = last[0];
        for (i64 i = 1; i < kQ; ++i) {
            begin = min(begin, first[i]);
            end = max(end, last[i]);
        }
        for (i64 key = begin / kKeys * kKeys; key < end; key += kKeys) {
            const i64 n = min(kKeys, end - key), seen = max(begin - key, 0);
            const Run run{cache, kv_head, cache.blocks_of(slot) + key / kKeyBlock,
                          ceil_div(end - key, kKeyBlock)};
            scores(run, seen, n);
            softmax(key, n);
            if constexpr (kIsScaled<Kv>) weigh_stored(run, key, seen, n);
            accumulate(run, seen, n);
        }
        for (i64 i = 0; i < wanted; ++i) {
            float inverse = 1.0f / total[i];
            for (i64 d = 0; d < C::kVHeadDim; ++d) out[i][d] = acc[i][d] * inverse;
        }
        count = 0;
    }
};

template <class Config, class Args = AttentionArgs<Config>>
struct AttentionKernel {
    using C = Config;
    const Args& a;
    KvCache<C, const typename C::Kv> cache;
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
            i64 stop = min(C::kPartBegin[part + 1], head + tile.kQ), shared = kv_head(head);
            for (; head < stop; ++head) add(token, head);
            tile.run(cache, a.slots[token], shared);
        }
    }

    // Queries [item * kItemQueries, ...) of [heads, tokens behind the single ones]: runs of tokens
    // of one head and one sequence.
    void by_head(i64 item) {
        const i64 tokens = a.num_tokens - a.num_singles;
        const i32* slots = a.slots + a.num_singles;
        i64 stop = min((item + 1) * C::kItemQueries, C::kQHeads * tokens);
        for (i64 i = item * C::kItemQueries; i < stop;) {
            i64 head = i / tokens, slot = slots[i % tokens];
            for (; i < stop && tile.count < tile.kQ && i / tokens == head &&
                   slots[i % tokens] == slot;
                 ++i)
                add(a.num_singles + i % tokens, head);
            tile.run(cache, slot, kv_head(head));
        }
    }
};

// Of tokens that go by heads of a group: all of decode, and those of a prompt's pass that are alone
// in their sequences.
template <class Config>
struct OfSingles : Config {
    static constexpr bool kByToken = true;
};

template <class Config>
CLEAVE_INLINE void attention(const AttentionArgs<Config>& a, i64 begin, i64 end, void*) {
    const i64 singles = a.num_singles * Config::kNumParts;
    if (Config::kByToken || begin < singles) {
        using Single = OfSingles<Config>;
        const i64 stop = Config::kByToken ? end : min(end, singles);
        AttentionKernel<Single, AttentionArgs<Config>> kernel{
            a, {a.kv, a.num_blocks, a.blocks, a.blocks_per_slot}, {}};
        for (; begin < stop; ++begin) kernel.by_token(begin);
    }
    if constexpr (!Config::kByToken) {
        if (begin == end) return;
        AttentionKernel<Config> kernel{a, {a.kv, a.num_blocks, a.blocks, a.blocks_per_slot}, {}};
        for (; begin < end; ++begin) kernel.by_head(begin - singles);
    }
}

}  // namespace cleave
