// SPDX-License-Identifier: Apache-2.0
// Attention of the ONNX standard over whole tensors: keys and values are those of the past, then
// the new ones. An item is a run of queries of one head, or copies one head's past and new keys and
// values to the present ones.
// Config: kHeadDim, kVHeadDim; Q, K, V, Out and Mask (element types); kMasked, kBooleanMask,
// kCausal, kByLength (nonpad_kv_seqlen is given), kLeftWindow and kRightWindow (-1: none), kScale,
// kSoftcap (0: none), kItemQueries, kKeep: which scores go to qk_matmul_output (-1: none; 0:
// products; 1: capped; 2: capped and masked; 3: softmax).
#pragma once

#include "math.h"
#include "tensor_types.h"

namespace cleave {

template <class Config>
struct TensorAttentionArgs {
    const typename Config::Q* Q;
    const typename Config::K* K;
    const typename Config::V* V;
    const typename Config::Mask* attn_mask;
    const typename Config::K* past_key;    // [batch, kv_heads, past, kHeadDim]
    const typename Config::V* past_value;  // [batch, kv_heads, past, kVHeadDim]
    const i64* nonpad_kv_seqlen;           // [batch]
    typename Config::Out* Y;
    typename Config::K* present_key;         // [batch, kv_heads, past + keys, kHeadDim]
    typename Config::V* present_value;       // [batch, kv_heads, past + keys, kVHeadDim]
    typename Config::Out* qk_matmul_output;  // [batch, heads, queries, past + keys]
    i64 batch, heads, kv_heads, queries, keys, past;
    i64 q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, y_batch, y_head,
        y_row;
    i64 mask_batch, mask_head, mask_row, mask_keys;  // entries past mask_keys hide their key
};

inline constexpr i64 kQueries = 4;

// Up to kQueries queries that read the same keys; softmax is taken online, block by block of keys
// (Milakov and Gimelshein, arXiv 1805.02867). Keys and values are rows, some distance apart.
template <class Config>
struct TensorTile {
    using C = Config;
    static constexpr i64 N = width_for(C::kHeadDim);    // lanes along a key
    static constexpr i64 VN = width_for(C::kVHeadDim);  // lanes along a value
    static constexpr i64 kKeys = 64;                    // of a block
    static_assert(N >= 2 && VN >= 2, "head sizes are even");

    alignas(64) float q[kQueries][C::kHeadDim];
    alignas(64) float acc[kQueries][C::kVHeadDim];
    alignas(64) float score[kQueries][kKeys];
    float top[kQueries], total[kQueries];
    i64 first[kQueries], last[kQueries];     // keys that the query sees: [first, last)
    const typename C::Mask* mask[kQueries];  // the query's row
    typename C::Out* kept[kQueries];         // where its scores go
    typename C::Out* out[kQueries];
    i64 count = 0, mask_keys = 0;

    CLEAVE_INLINE void add(const typename C::Q* source, typename C::Out* destination, i64 from,
                           i64 to) {
        for (i64 i = 0; i < C::kHeadDim; ++i) q[count][i] = load_one(source + i) * C::kScale;
        for (i64 i = 0; i < C::kVHeadDim; ++i) acc[count][i] = 0.0f;
        top[count] = -__builtin_inff();
        total[count] = 0.0f;
        last[count] = to;
        first[count] = from;
        out[count++] = destination;
    }

    // Scores of N keys; keys past `valid` repeat the last one and are hidden later.
    template <class T>
    CLEAVE_INLINE FloatN<N> score_keys(const float* query, const T* keys, i64 stride,
                                       i64 valid) const {
        FloatN<N> sums[N];
        const T* row[N];
#pragma clang loop unroll(full)
        for (i64 j = 0; j < N; ++j) {
            row[j] = keys + min(j, valid - 1) * stride;
            sums[j] = 0.0f;
        }
        for (i64 d = 0; d < C::kHeadDim; d += N) {
            FloatN<N> x = load<N>(query + d);
#pragma clang loop unroll(full)
            for (i64 j = 0; j < N; ++j) sums[j] += x * load<N>(row[j] + d);
        }
        return sum_each<N>(sums);
    }

    // Keeps the first `valid` scores of a vector, when they are of that kind.
    template <i64 kKind, class Scores>
    CLEAVE_INLINE void keep(i64 i, i64 key, Scores s, i64 valid) const {
        if constexpr (C::kKeep == kKind)
            for (i64 j = 0; j < min(N, valid); ++j) store_one(kept[i] + key + j, s[j]);
    }

    // Adds the mask to the scores of keys [key, key + n), or hides those that it does not choose;
    // hides those outside [first, last) and past n, so that whole vectors can follow: what is not
    // seen weighs 0.
    CLEAVE_INLINE void apply_mask(i64 i, i64 key, i64 n) {
        const float kMinus = -__builtin_inff();
        if constexpr (C::kMasked) {
            for (i64 j = 0; j < n; ++j) {
                if (key + j >= mask_keys)
                    score[i][j] = kMinus;
                else if constexpr (C::kBooleanMask)
                    score[i][j] = mask[i][key + j] != 0 ? score[i][j] : kMinus;
                else
                    score[i][j] += load_one(mask[i] + key + j);
            }
        }
        for (i64 j = 0; j < min(first[i] - key, kKeys); ++j) score[i][j] = kMinus;
        for (i64 j = max(min(last[i] - key, n), 0); j < kKeys; ++j) score[i][j] = kMinus;
    }

    // Scores of query i for keys [key, key + n), capped, masked; then the running softmax.
    template <class T>
    CLEAVE_INLINE void attend(i64 i, const T* keys, i64 stride, i64 key, i64 n) {
        const float kMinus = -__builtin_inff();
        for (i64 j = 0; j < n; j += N) {
            FloatN<N> s = score_keys(q[i], keys + j * stride, stride, n - j);
            keep<0>(i, key + j, s, n - j);
            if constexpr (C::kSoftcap > 0.0f) s = tanh<N>(s * (1.0f / C::kSoftcap)) * C::kSoftcap;
            keep<1>(i, key + j, s, n - j);
            store<N>(score[i] + j, s);
        }
        apply_mask(i, key, n);
        if constexpr (C::kKeep >= 2)
            for (i64 j = 0; j < n; ++j) store_one(kept[i] + key + j, score[i][j]);
        Vec best = kMinus;
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
        float rescale = exp<2>(FloatN<2>(top[i] - next))[0];
        Vec sums = 0.0f;
        for (i64 j = 0; j < kKeys; j += kLanes) {
            Vec s = load(score[i] + j);
            Vec p = exp<kLanes>(s - next);
            p = s == Vec(kMinus) ? Vec(0.0f) : p;
            store(score[i] + j, p);
            sums += p;
        }
        total[i] = total[i] * rescale + sum(sums);
        if (next != top[i])
            for (i64 d = 0; d < C::kVHeadDim; ++d) acc[i][d] *= rescale;
        top[i] = next;
    }

    // acc[i] += sum over keys of score * value.
    template <class T>
    CLEAVE_INLINE void accumulate(const T* values, i64 stride, i64 n) {
        for (i64 d = 0; d < C::kVHeadDim; d += VN) {
            FloatN<VN> sums[kQueries];
            for (i64 i = 0; i < count; ++i) sums[i] = load<VN>(acc[i] + d);
            for (i64 j = 0; j < n; ++j) {
                FloatN<VN> v = load<VN>(values + j * stride + d);
                for (i64 i = 0; i < count; ++i) sums[i] += FloatN<VN>(score[i][j]) * v;
            }
            for (i64 i = 0; i < count; ++i) store<VN>(acc[i] + d, sums[i]);
        }
    }

    // A query that sees no key at all gives zeros.
    CLEAVE_INLINE void finish() {
        for (i64 i = 0; i < count; ++i) {
            float inverse = total[i] > 0.0f ? 1.0f / total[i] : 0.0f;
            for (i64 d = 0; d < C::kVHeadDim; ++d) store_one(out[i] + d, acc[i][d] * inverse);
        }
        count = 0;
    }
};

template <class Config>
struct TensorAttention {
    using C = Config;
    const TensorAttentionArgs<C>& a;
    TensorTile<C> tile;

    // Adds query `row` with the keys that length, causality and windows leave it.
    CLEAVE_INLINE void add(i64 batch, i64 head, i64 row) {
        i64 all = a.past + a.keys, from = 0, to = all, offset = a.past;
        if constexpr (C::kByLength) {
            to = min(max(a.nonpad_kv_seqlen[batch], 0), all);
            offset = a.nonpad_kv_seqlen[batch] - a.queries;
        }
        i64 position = offset + row;
        if constexpr (C::kCausal) to = min(to, position + 1);
        if constexpr (C::kRightWindow >= 0) to = min(to, position + C::kRightWindow + 1);
        if constexpr (C::kLeftWindow >= 0) from = max(from, position - C::kLeftWindow);
        i64 i = tile.count;
        if constexpr (C::kMasked)
            tile.mask[i] =
                a.attn_mask + batch * a.mask_batch + head * a.mask_head + row * a.mask_row;
        if constexpr (C::kKeep >= 0)
            tile.kept[i] = a.qk_matmul_output + ((batch * a.heads + head) * a.queries + row) * all;
        tile.add(a.Q + batch * a.q_batch + head * a.q_head + row * a.q_row,
                 a.Y + batch * a.y_batch + head * a.y_head + row * a.y_row, from, max(from, to));
    }

    // Blocks of keys [from, to), contiguous from `keys` and `values` on.
    template <class K, class V>
    CLEAVE_INLINE void walk(const K* keys, const V* values, i64 key_stride, i64 value_stride,
                            i64 from, i64 to, i64 origin) {
        for (i64 key = from; key < to; key += tile.kKeys) {
            i64 n = min(tile.kKeys, to - key);
            for (i64 i = 0; i < tile.count; ++i)
                tile.attend(i, keys + (key - origin) * key_stride, key_stride, key, n);
            tile.accumulate(values + (key - origin) * value_stride, value_stride, n);
        }
    }

    CLEAVE_INLINE void run(i64 batch, i64 head) {
        i64 all = a.past + a.keys, begin = all, end = 0, kv_head = head / (a.heads / a.kv_heads);
        for (i64 i = 0; i < tile.count; ++i) {
            begin = min(begin, tile.first[i]);
            end = max(end, tile.last[i]);
        }
        if constexpr (C::kKeep >= 0) {
            begin = 0;
            end = all;
        }
        tile.mask_keys = a.mask_keys;
        i64 old = (batch * a.kv_heads + kv_head) * a.past;
        walk(a.past_key + old * C::kHeadDim, a.past_value + old * C::kVHeadDim, C::kHeadDim,
             C::kVHeadDim, begin, min(end, a.past), 0);
        walk(a.K + batch * a.k_batch + kv_head * a.k_head,
             a.V + batch * a.v_batch + kv_head * a.v_head, a.k_row, a.v_row, max(begin, a.past),
             end, a.past);
        if constexpr (C::kKeep == 3) keep_softmax(all);
        tile.finish();
    }

    CLEAVE_INLINE void keep_softmax(i64 all) {
        for (i64 i = 0; i < tile.count; ++i)
            for (i64 key = 0; key < all; ++key) {
                auto* kept = tile.kept[i] + key;
                float score = load_one(kept) - tile.top[i];
                float share =
                    tile.total[i] > 0.0f ? exp<2>(FloatN<2>(score))[0] / tile.total[i] : 0.0f;
                store_one(kept, load_one(kept) == -__builtin_inff() ? 0.0f : share);
            }
    }

    CLEAVE_INLINE void attend(i64 item) {
        i64 runs = ceil_div(a.queries, C::kItemQueries);
        i64 head = item / runs % a.heads, batch = item / runs / a.heads;
        i64 row = item % runs * C::kItemQueries, stop = min(row + C::kItemQueries, a.queries);
        while (row < stop) {
            for (; row < stop && tile.count < kQueries; ++row) add(batch, head, row);
            run(batch, head);
        }
    }

    // Past and new rows of one head, one after the other.
    template <class T>
    CLEAVE_INLINE void join(const T* past, const T* added, i64 stride, i64 features,
                            T* present) const {
        for (i64 i = 0; i < a.past * features; ++i) present[i] = past[i];
        for (i64 row = 0; row < a.keys; ++row)
            for (i64 i = 0; i < features; ++i)
                present[(a.past + row) * features + i] = added[row * stride + i];
    }
    CLEAVE_INLINE void copy(i64 head) const {
        i64 batch = head / a.kv_heads, kv_head = head % a.kv_heads, all = a.past + a.keys;
        if (a.present_key)
            join(a.past_key + head * a.past * C::kHeadDim,
                 a.K + batch * a.k_batch + kv_head * a.k_head, a.k_row, C::kHeadDim,
                 a.present_key + head * all * C::kHeadDim);
        if (a.present_value)
            join(a.past_value + head * a.past * C::kVHeadDim,
                 a.V + batch * a.v_batch + kv_head * a.v_head, a.v_row, C::kVHeadDim,
                 a.present_value + head * all * C::kVHeadDim);
    }
};

template <class Config>
CLEAVE_INLINE void tensor_attention(const TensorAttentionArgs<Config>& a, i64 begin, i64 end,
                                    void*) {
    TensorAttention<Config> kernel{a, {}};
    i64 attending = a.batch * a.heads * ceil_div(a.queries, Config::kItemQueries);
    for (i64 item = begin; item < end; ++item) {
        if (item < attending)
            kernel.attend(item);
        else
            kernel.copy(item - attending);
    }
}

}  // namespace cleave
