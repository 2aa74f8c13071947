// SPDX-License-Identifier: Apache-2.0
// c[t][r] = dot(w[r], x[t]) for a block of weight rows and a block of tokens, K features deep.
// Weights are f32, f16, bf16 or f8e4m3, row major, or quantised (quantized.h); everything else is
// f32. Two ways. Few tokens (decode): vectors run along K, weights stream through once, straight
// from memory. Many tokens (prefill): the block of x is transposed once into panels of 1 or 2
// vectors of tokens, and a tile of kTileRows rows x one panel accumulates in registers over the
// whole depth, with no reduction at the end. A product of integers (Quantized::kDynamic) is exact:
// no f32 sum is longer than its integers stay below 2^24, then it goes on in int32.
#pragma once

#include "dots.h"
#include "lanes.h"
#include "prelude.h"
#include "quantized.h"
#include "token_block.h"

namespace cleave {

inline constexpr i64 kConvertDepth = 256;  // of the f32 copy of a narrow tile

// Row stride of c, and its floats: a tile stores whole vectors, past the last row.
constexpr i64 c_stride(i64 rows) { return rows + kLanes; }
// Scratch floats for the f32 copy of narrow weights.
template <class W>
constexpr i64 convert_floats() {
    return sizeof(W) == 4 && !kIsQuantized<W> ? 0 : kTileRows * kConvertDepth;
}

// ---- Many tokens

// Short rows defeat the hardware's prefetcher, as in dot_rows: those of the next tile are read from
// memory while this one multiplies, where they are this many bytes at most.
inline constexpr i64 kNextTile = 256 << 10;

CLEAVE_INLINE void prefetch_bytes(const void* from, i64 bytes) {
    for (i64 at = 0; at < bytes; at += 64)
        __builtin_prefetch(static_cast<const char*>(from) + at, 0, 2);
}

// kAhead: of each row, this many floats on are asked for into the second-level cache; 0: nothing.
template <i64 R, i64 V, i64 kAhead = 0>
CLEAVE_INLINE void panel_depth(const float* w, i64 w_stride, const float* x, i64 depth,
                               Vec (&acc)[R][V]) {
    constexpr i64 kLine = 64 / sizeof(float);
#pragma clang loop unroll(disable)
    for (i64 k = 0; k < depth; ++k) {
        if constexpr (kAhead > 0)
            if (k % kLine == 0)
#pragma clang loop unroll(full)
                for (i64 r = 0; r < R; ++r) __builtin_prefetch(w + r * w_stride + k + kAhead, 0, 2);
        Vec xs[V];
#pragma clang loop unroll(full)
        for (i64 v = 0; v < V; ++v) xs[v] = load(x + k * V * kLanes + v * kLanes);
#pragma clang loop unroll(full)
        for (i64 r = 0; r < R; ++r) {
            Vec ws = Vec(w[r * w_stride + k]);
#pragma clang loop unroll(full)
            for (i64 v = 0; v < V; ++v) acc[r][v] += ws * xs[v];
        }
    }
}

// Lane t of every row goes to c + t * c_stride, for `tokens` lanes. Out of line: six tiles share
// it.
__attribute__((noinline)) inline void store_transposed(Vec (&tile)[kLanes], i64 tokens, float* c,
                                                       i64 c_stride) {
    transpose_tile(tile);
#pragma clang loop unroll(disable)
    for (i64 t = 0; t < tokens; ++t) store(c + t * c_stride, tile[t]);
}

// Sums of R rows x V vectors of tokens over the whole depth.
template <i64 K, i64 R, i64 V, class W>
CLEAVE_INLINE void panel_sums(const W* w, const float* x, float, Vec (&acc)[R][V],
                              float* converted) {
    if constexpr (sizeof(W) == 4) {
        constexpr i64 kAhead = R * K * 4 <= kNextTile ? R * K : 0;
        panel_depth<R, V, kAhead>(reinterpret_cast<const float*>(w), K, x, K, acc);
    } else {
        constexpr i64 kSize = sizeof(W), kAhead = R * K * kSize;
        for (i64 k = 0; k < K; k += kConvertDepth) {
            i64 depth = min(kConvertDepth, K - k);
            for (i64 r = 0; r < R; ++r) {
                if constexpr (kAhead <= kNextTile)
                    prefetch_bytes(w + r * K + k + R * K, depth * kSize);
                widen<K>(w, r, k, depth, converted + r * kConvertDepth);
            }
            panel_depth<R, V>(converted, kConvertDepth, x + k * V * kLanes, depth, acc);
        }
    }
}

template <i64 K, i64 R, i64 V, class Q>
CLEAVE_INLINE void panel_sums(QuantizedRows<Q> w, const float* x, float step, Vec (&acc)[R][V],
                              float* converted) {
    static_assert(kConvertDepth % kGroup == 0 && kConvertDepth * 255 * 255 <= (1 << 24));
    IntN<kLanes> whole[R][V];
    if constexpr (Q::kDynamic)
        for (i64 i = 0; i < R * V; ++i) whole[i / V][i % V] = 0;
    for (i64 k = 0; k < K; k += kConvertDepth) {
        i64 depth = min(kConvertDepth, K - k);
        for (i64 r = 0; r < R; ++r) {
            if constexpr (R * Q::kRowBytes <= kNextTile)
                prefetch_bytes(w.codes + (r + R) * Q::kRowBytes + k / kGroup * Q::kGroupBytes,
                               depth / kGroup * Q::kGroupBytes);
            widen<K>(w, r, k, depth, converted + r * kConvertDepth);
        }
        panel_depth<R, V>(converted, kConvertDepth, x + k * V * kLanes, depth, acc);
        if constexpr (Q::kDynamic) {
            for (i64 i = 0; i < R * V; ++i) {
                whole[i / V][i % V] += __builtin_convertvector(acc[i / V][i % V], IntN<kLanes>);
                acc[i / V][i % V] = 0.0f;
            }
        }
    }
    if constexpr (Q::kDynamic)
        for (i64 i = 0; i < R * V; ++i)
            acc[i / V][i % V] =
                __builtin_convertvector(whole[i / V][i % V], Vec) * (step * w.scale(i / V, 0));
}

// R rows x V vectors of tokens; `tokens` of them are stored.
template <i64 K, i64 R, i64 V, class Weights>
void panel_tile(Weights w, const float* x, i64 tokens, float step, float* c, i64 c_stride,
                float* converted) {
    Vec acc[R][V];
#pragma clang loop unroll(full)
    for (i64 i = 0; i < R * V; ++i) acc[i / V][i % V] = 0.0f;
    panel_sums<K>(w, x, step, acc, converted);
#pragma clang loop unroll(full)
    for (i64 v = 0; v < V; ++v) {
        for (i64 r0 = 0; r0 < R; r0 += kLanes) {
            Vec tile[kLanes];
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kLanes; ++i)
                tile[i] = r0 + i < R ? acc[min(r0 + i, R - 1)][v] : Vec(0.0f);
            store_transposed(tile, min(kLanes, tokens - v * kLanes), c + v * kLanes * c_stride + r0,
                             c_stride);
        }
    }
}

template <i64 K, i64 V, class Weights>
void panel_rows(Weights w, i64 rows, const float* x, i64 tokens, float step, float* c, i64 c_stride,
                float* converted) {
    i64 r = 0;
#pragma clang loop unroll(disable)
    for (; r + kTileRows <= rows; r += kTileRows)
        panel_tile<K, kTileRows, V>(skip_rows<K>(w, r), x, tokens, step, c + r, c_stride,
                                    converted);
#pragma clang loop unroll(disable)
    for (; r + 4 <= rows; r += 4)
        panel_tile<K, 4, V>(skip_rows<K>(w, r), x, tokens, step, c + r, c_stride, converted);
#pragma clang loop unroll(disable)
    for (; r < rows; ++r)
        panel_tile<K, 1, V>(skip_rows<K>(w, r), x, tokens, step, c + r, c_stride, converted);
}

// ---- The product

// c [block.count][c_stride] from `rows` rows of w: a pointer, or QuantizedRows. Vectors past the
// last row of c are overwritten. kReproducible: the sums of few tokens have the order of many;
// those of integers are exact in any order.
template <i64 K, bool kReproducible = false, class Weights>
__attribute__((noinline)) void multiply(Weights w, i64 rows, const Block& block, float* c,
                                        i64 c_stride, float* converted) {
    if (!block.packed) {
        if constexpr (kReproducible && !kIsIntegers<Weights>)
            lane_block<K>(w, rows, block, c, c_stride);
        else
            dot_block<K>(w, rows, block, c, c_stride);
        return;
    }
    const i64 packed = block.count - block.num_rest;
    for (i64 t = 0; t < packed; t += kPanel) {
        const float* x = block.data + t * K;
        i64 tokens = packed - t;
        if (tokens > kLanes)
            panel_rows<K, 2>(w, rows, x, min(tokens, kPanel), block.step, c + t * c_stride,
                             c_stride, converted);
        else
            panel_rows<K, 1>(w, rows, x, tokens, block.step, c + t * c_stride, c_stride, converted);
    }
    if constexpr (kMostRest<kReproducible> > 0)
        if (block.num_rest > 0)
            dot_block<K>(w, rows,
                         Block{block.rest, block.num_rest, block.stride, false, block.step},
                         c + packed * c_stride, c_stride);
}

}  // namespace cleave
