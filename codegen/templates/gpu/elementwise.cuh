// SPDX-License-Identifier: Apache-2.0
// Operators with launches of their own: embedding, RmsNorm, Rope, KV append, gated activation, Add,
// Scale, SelectTokens, and the copies and sums of collectives. Inputs have a row stride and a first
// column, outputs are dense [rows, kOut]. A block takes a run of kThreads * kRun features of one
// row, kBlocks of them all of it; a thread kRun neighbours, which divide every length, offset and
// stride. Rows are counted by block_x, too: it alone has no limit that a batch can meet. X:
// activations. `others`: operands of the epilogue (epilogue.cuh).
#pragma once

#include "epilogue.cuh"
#include "kv_cache.cuh"
#include "weights.cuh"

namespace cleave {

// The row of this block.
template <class C>
DEVICE i64 my_row() {
    return block_x() / int(C::kBlocks);
}

// First feature of this thread; kOut or more: none.
template <class C>
DEVICE i64 my_feature() {
    return (i64(block_x() % int(C::kBlocks)) * C::kThreads + thread_x()) * C::kRun;
}

template <class C, class F>
DEVICE void each_feature(const F& f) {
    i64 i = my_feature<C>();
    if (i < C::kOut) f(my_row<C>(), i);
}

template <class C>
using Run = Floats<int(C::kRun)>;

// Features from i on of row t, after the epilogue.
template <class C, class... Others>
DEVICE void put(typename C::X* out, i64 t, i64 i, const Run<C>& v, Others... others) {
    const typename C::X* other[] = {others..., nullptr};
    write_run<int(C::kRun)>(out + t * C::kOut + i, with_epilogue<C>(v, other, t, i));
}

// A row of a table for ids in [first, first + kRows), zero for every other id
// (vocabulary-parallel).
template <class C>
DEVICE void embedding(const i32* ids, i64 first, const typename C::Weight* table,
                      typename C::X* out) {
    each_feature<C>([&](i64 t, i64 i) {
        i64 row = ids[t] - first;
        bool mine = row >= 0 && row < C::kRows;
        constexpr int kRun = int(C::kRun);
        using Matrix = Weights<typename C::Weight>;
        Run<C> v =
            Matrix::template load<kRun>(Matrix::row(table, mine ? row : 0, C::kRows, C::kOut), i);
#pragma unroll
        for (int j = 0; j < kRun; ++j) v[j] = mine ? v[j] * C::kScale : 0.0f;
        if constexpr (C::kOut % C::kRun == 0) {
            write_run<kRun>(out + t * C::kOut + i, v);
        } else {  // a quantised row ends within its last load
#pragma unroll
            for (int j = 0; j < kRun; ++j)
                if (i + j < C::kOut) out[t * C::kOut + i + j] = from_float<typename C::X>(v[j]);
        }
    });
}

// Each run of kGroup features is normalised alone, by the whole block; its weight is [kGroup].
// kBlocks: kOut / kGroup.
template <class C, class... Others>
DEVICE void rms_norm(const typename C::X* x, const typename C::Weight* weight, typename C::X* out,
                     Others... others) {
    static_assert(C::kThreads / WARP * 4 <= C::kSharedBytes);
    DYNAMIC_SHARED(float, partial);  // [kThreads / WARP]
    i64 t = my_row<C>(), g = block_x() % int(C::kBlocks);
    const typename C::X* from = x + t * C::kXStride + C::kXOffset + g * C::kGroup;
    float sum = 0.0f;
    for (i64 i = thread_x() * C::kRun; i < C::kGroup; i += C::kThreads * C::kRun) {
        Run<C> v = load_floats<int(C::kRun)>(from + i);
#pragma unroll
        for (int j = 0; j < int(C::kRun); ++j) sum = fma(v[j], v[j], sum);
    }
    sum = warp_sum(sum);
    if (lane() == 0) partial[warp()] = sum;
    barrier();
    sum = 0.0f;
    for (int w = 0; w < int(C::kThreads) / WARP; ++w) sum += partial[w];
    float scale = rsqrt(sum * (1.0f / float(C::kGroup)) + C::kEpsilon);
    for (i64 i = thread_x() * C::kRun; i < C::kGroup; i += C::kThreads * C::kRun) {
        Run<C> v = load_floats<int(C::kRun)>(from + i), w = load_floats<int(C::kRun)>(weight + i);
#pragma unroll
        for (int j = 0; j < int(C::kRun); ++j) v[j] *= scale * (w[j] + C::kOffset);
        put<C>(out, t, g * C::kGroup + i, v, others...);
    }
}

// kRun is 1: a thread reads the other feature of its pair too.
template <class C, class... Others>
DEVICE void rope(const typename C::X* x, const float* table, i64 context, const i32* positions,
                 typename C::X* out, Others... others) {
    each_feature<C>([&](i64 t, i64 i) {
        const typename C::X* row = x + t * C::kXStride + C::kXOffset;
        constexpr int kHalf = int(C::kRotary) / 2;
        int f = int(i % C::kHeadDim);
        float v = to_float(row[i]);
        if (f < int(C::kRotary)) {
            bool second = C::kInterleaved ? f % 2 != 0 : f >= kHalf;
            int pair = C::kInterleaved ? f / 2 : f % kHalf;
            int apart = C::kInterleaved ? 1 : kHalf;
            float other = to_float(row[second ? i - apart : i + apart]);
            i64 at = i64(positions[t]) * kHalf + pair;
            float cos = table[at], sin = table[context * kHalf + at];
            v = second ? v * cos + other * sin : v * cos - other * sin;
        }
        put<C>(out, t, i, Run<C>{{v}}, others...);
    });
}

// Rows of 8 bits: a warp takes heads of k, then of v.
template <class C>
DEVICE void append_scaled(const typename C::X* k, const typename C::X* v,
                          const KvCache<C, typename C::Kv>& cache, i32 position, i64 slot) {
    const i64 t = my_row<C>();
    constexpr int kWarps = int(C::kThreads) / WARP, kHeads = int(C::kKvHeads);
    const int first = block_x() % int(C::kBlocks) * kWarps + warp();
    for (int i = first; i < 2 * kHeads; i += int(C::kBlocks) * kWarps) {
        const int head = i % kHeads;
        const auto rows = cache.rows(slot, C::kSlabOffset + head);
        const i32 block = rows.block(position);
        if (i < kHeads) {
            const typename C::X* from = k + t * C::kKStride + C::kKOffset + head * C::kHeadDim;
            write_scaled_row<int(C::kHeadDim), kv_run<C>()>(
                rows.key(block, position), rows.key_scale(block, position),
                [&](int f) { return to_float(from[f]); });
        } else {
            const typename C::X* from = v + t * C::kVStride + C::kVOffset + head * C::kVHeadDim;
            write_scaled_row<int(C::kVHeadDim), kv_run<C>()>(
                rows.value(block, position), rows.value_scale(block, position),
                [&](int f) { return to_float(from[f]); });
        }
    }
}

// Features of all heads of k, then of all heads of v.
template <class C>
DEVICE void kv_append(const typename C::X* k, const typename C::X* v, typename C::Kv* kv,
                      i64 num_blocks, const i32* blocks, i64 blocks_per_slot, const i32* positions,
                      const i32* slots) {
    const KvCache<C, typename C::Kv> cache{kv, num_blocks, blocks, blocks_per_slot};
    if constexpr (KvElement<typename C::Kv>::kScaled) {
        const i64 row = my_row<C>();
        append_scaled<C>(k, v, cache, positions[row], slots[row]);
    } else {
        each_feature<C>([&](i64 t, i64 i) {
            constexpr i64 kKeys = C::kKvHeads * C::kHeadDim;
            bool is_key = i < kKeys;
            i64 f = is_key ? i : i - kKeys, dim = is_key ? C::kHeadDim : C::kVHeadDim;
            const typename C::X* from = is_key ? k + t * C::kKStride + C::kKOffset + f
                                               : v + t * C::kVStride + C::kVOffset + f;
            const auto rows = cache.rows(slots[t], C::kSlabOffset + f / dim);
            const i32 block = rows.block(positions[t]);
            auto* row = is_key ? rows.key(block, positions[t]) : rows.value(block, positions[t]);
            write_run<int(C::kRun)>(row + f % dim, load_floats<int(C::kRun)>(from));
            kv_wrote(row + f % dim, int(C::kRun));
        });
    }
}

template <class C, class... Others>
DEVICE void gated_activation(const typename C::X* gate, const typename C::X* up, typename C::X* out,
                             Others... others) {
    each_feature<C>([&](i64 t, i64 i) {
        Run<C> g = load_floats<int(C::kRun)>(gate + t * C::kXStride + C::kXOffset + i);
        Run<C> u = load_floats<int(C::kRun)>(up + t * C::kYStride + C::kYOffset + i);
#pragma unroll
        for (int j = 0; j < int(C::kRun); ++j) g[j] = activate<C::kActivation>(g[j]) * u[j];
        put<C>(out, t, i, g, others...);
    });
}

template <class C, class... Others>
DEVICE void add(const typename C::X* x, const typename C::X* y, typename C::X* out,
                Others... others) {
    each_feature<C>([&](i64 t, i64 i) {
        Run<C> v = load_floats<int(C::kRun)>(x + t * C::kXStride + C::kXOffset + i);
        Run<C> w = load_floats<int(C::kRun)>(y + t * C::kYStride + C::kYOffset + i);
#pragma unroll
        for (int j = 0; j < int(C::kRun); ++j) v[j] += w[j];
        put<C>(out, t, i, v, others...);
    });
}

template <class C, class... Others>
DEVICE void scale(const typename C::X* x, typename C::X* out, Others... others) {
    each_feature<C>([&](i64 t, i64 i) {
        Run<C> v = load_floats<int(C::kRun)>(x + t * C::kXStride + C::kXOffset + i);
#pragma unroll
        for (int j = 0; j < int(C::kRun); ++j) {
            v[j] *= C::kScale;
            if constexpr (C::kSoftcap > 0.0f)
                v[j] = C::kSoftcap * tanh(v[j] * (1.0f / C::kSoftcap));
        }
        put<C>(out, t, i, v, others...);
    });
}

template <class C, class... Others>
DEVICE void select_tokens(const typename C::X* x, const i32* rows, typename C::X* out,
                          Others... others) {
    each_feature<C>([&](i64 t, i64 i) {
        put<C>(out, t, i,
               load_floats<int(C::kRun)>(x + i64(rows[t]) * C::kXStride + C::kXOffset + i),
               others...);
    });
}

}  // namespace cleave
