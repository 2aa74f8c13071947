// SPDX-License-Identifier: Apache-2.0
// c[t][r] = dot(w[r], x[t]) for a block of weight rows and a block of tokens, K features deep. Weights are
// f32, f16 or bf16, row major; everything else is f32.
// Two ways. Few tokens (decode): vectors run along K, weights stream through once, straight from memory. Many
// tokens (prefill): the block of x is transposed once into panels of 1 or 2 vectors of tokens, and a tile of
// kTileRows rows x one panel accumulates in registers over the whole depth, with no reduction at the end.
#pragma once

#include "norm.h"
#include "prelude.h"

namespace cleave {

inline constexpr i64 kDotTokens = 8;       // up to here: vectors along K
inline constexpr i64 kPanel = 2 * kLanes;  // tokens of a full panel
inline constexpr i64 kConvertDepth = 256;  // of the f32 copy of a narrow tile

// Rows of activations: row t is x + (rows ? rows[t] : t) * stride.
struct Rows {
    const float* x;
    i64 stride;
    const i32* rows;
    CLEAVE_INLINE const float* row(i64 t) const { return x + (rows ? rows[t] : t) * stride; }
};

// A block of tokens made ready. `packed`: panels [K][kPanel] one after the other, the last one [K][kLanes]
// when that suffices, missing tokens are zero. Otherwise rows [count][stride].
struct Block {
    const float* data;
    i64 count;
    i64 stride;
    bool packed;
};

// Scratch floats that `prepare` needs for blocks of `tokens`.
constexpr i64 block_floats(i64 depth, i64 tokens) {
    return round_up(tokens, kLanes) * round_up(depth, kLanes);
}
// Row stride of c, and its floats: a tile stores whole vectors, past the last row.
constexpr i64 c_stride(i64 rows) { return rows + kLanes; }
// Scratch floats for the f32 copy of narrow weights.
template <class W>
constexpr i64 convert_floats() {
    return sizeof(W) == 4 ? 0 : kTileRows * kConvertDepth;
}

// ---- Making a block of tokens ready ---------------------------------------------------------------

// Transposes tokens [0, count) of `rows`, scaled by scale[t] and the norm's weight, into panel[k][kWidth].
template <i64 K, class Norm>
CLEAVE_INLINE void pack_lanes(const float* const* rows, const float* scale, const Norm& norm,
                              i64 stride, float* panel) {
    i64 k = 0;
    for (; k + kLanes <= K; k += kLanes) {
        Vec tile[kLanes];
#pragma clang loop unroll(full)
        for (i64 t = 0; t < kLanes; ++t) tile[t] = load(rows[t] + k) * scale[t];
        if constexpr (Norm::kPresent) {
            Vec weight = load(norm.weight + k) + norm.offset;
#pragma clang loop unroll(full)
            for (i64 t = 0; t < kLanes; ++t) tile[t] *= weight;
        }
        transpose<kLanes>(tile);
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kLanes; ++i) store(panel + (k + i) * stride, tile[i]);
    }
    for (; k < K; ++k) {
        float weight = 1.0f;
        if constexpr (Norm::kPresent) weight = load_one(norm.weight + k) + norm.offset;
        for (i64 t = 0; t < kLanes; ++t) panel[k * stride + t] = rows[t][k] * scale[t] * weight;
    }
}

template <i64 K, class Norm>
void pack(const Rows& input, i64 first, i64 count, const Norm& norm, float* out) {
    for (i64 t0 = 0; t0 < count; t0 += kLanes) {
        const float* rows[kLanes];
        float scale[kLanes];
        for (i64 t = 0; t < kLanes; ++t) {
            // Lanes without a token repeat the last one: finite where it is, and never stored.
            rows[t] = input.row(first + min(t0 + t, count - 1));
            scale[t] = 1.0f;
            if constexpr (Norm::kPresent) scale[t] = rms_scale<K>(rows[t], norm.epsilon);
        }
        i64 panel = t0 / kPanel * kPanel;
        i64 stride = count - panel > kLanes ? kPanel : kLanes;
        pack_lanes<K>(rows, scale, norm, stride, out + panel * K + (t0 - panel));
    }
}

template <i64 K, class Norm>
CLEAVE_INLINE Block prepare(const Rows& input, i64 first, i64 count, const Norm& norm,
                            float* scratch) {
    if (count > kDotTokens) {
        pack<K>(input, first, count, norm, scratch);
        return {scratch, count, 0, true};
    }
    if constexpr (!Norm::kPresent) {
        if (!input.rows) return {input.row(first), count, input.stride, false};
        for (i64 t = 0; t < count; ++t)
            __builtin_memcpy(scratch + t * K, input.row(first + t), K * sizeof(float));
    } else {
        for (i64 t = 0; t < count; ++t)
            rms_norm_row<K>(input.row(first + t), norm, scratch + t * K);
    }
    return {scratch, count, K, false};
}

// ---- Few tokens -----------------------------------------------------------------------------------

// The last K % kLanes features, by halving widths.
template <i64 kRest, class W>
CLEAVE_INLINE float dot_rest(const W* w, const float* x) {
    if constexpr (kRest == 0) {
        return 0.0f;
    } else if constexpr (kRest == 1) {
        return load_one(w) * x[0];
    } else {
        constexpr i64 N = kRest >= 8 ? 8 : kRest >= 4 ? 4 : 2;
        return sum(load<N>(w) * load<N>(x)) + dot_rest<kRest - N>(w + N, x + N);
    }
}

template <i64 K, i64 R, i64 T, class W>
CLEAVE_INLINE void dot_tile(const W* w, i64 w_stride, const float* x, i64 x_stride, float* c,
                            i64 c_stride) {
    constexpr i64 U = R * T >= 8   ? 1
                      : R * T >= 4 ? 2
                                   : 4;  // independent sums hide the FMA's latency
    // Short rows defeat the hardware's prefetcher: the next tile's rows are asked for into the second-level
    // cache. Alone this takes decoding from 0.7 of a plain read loop's bandwidth to all of it (hidden 768).
    constexpr i64 kAhead = R * K * static_cast<i64>(sizeof(W)) <= (256 << 10) ? R * K : 1024;
    Vec acc[R][T][U];
#pragma clang loop unroll(full)
    for (i64 i = 0; i < R * T * U; ++i) acc[i / (T * U)][i / U % T][i % U] = 0.0f;
    i64 k = 0;
    auto step = [&](i64 at, i64 u) __attribute__((always_inline)) {
        Vec xs[T];
#pragma clang loop unroll(full)
        for (i64 t = 0; t < T; ++t) xs[t] = load(x + t * x_stride + at);
#pragma clang loop unroll(full)
        for (i64 r = 0; r < R; ++r) {
            // Past the end of the weights this asks for nothing that exists, which is harmless.
            __builtin_prefetch(w + r * w_stride + at + kAhead, 0, 2);
            Vec ws = load(w + r * w_stride + at);
#pragma clang loop unroll(full)
            for (i64 t = 0; t < T; ++t) acc[r][t][u] += ws * xs[t];
        }
    };
#pragma clang loop unroll(disable)
    for (; k + U * kLanes <= K; k += U * kLanes) {
#pragma clang loop unroll(full)
        for (i64 u = 0; u < U; ++u) step(k + u * kLanes, u);
    }
    if constexpr (U > 1)
        for (; k + kLanes <= K; k += kLanes) step(k, 0);
    constexpr i64 kWhole = K / kLanes * kLanes;
#pragma clang loop unroll(full)
    for (i64 r = 0; r < R; ++r) {
#pragma clang loop unroll(full)
        for (i64 t = 0; t < T; ++t) {
            Vec total = acc[r][t][0];
#pragma clang loop unroll(full)
            for (i64 u = 1; u < U; ++u) total += acc[r][t][u];
            float rest = dot_rest<K - kWhole>(w + r * w_stride + kWhole, x + t * x_stride + kWhole);
            c[t * c_stride + r] = sum(total) + rest;
        }
    }
}

template <i64 K, i64 T, class W>
void dot_rows(const W* w, i64 w_stride, i64 rows, const float* x, i64 x_stride, float* c,
              i64 c_stride) {
    constexpr i64 R = 4;
    i64 r = 0;
    for (; r + R <= rows; r += R)
        dot_tile<K, R, T>(w + r * w_stride, w_stride, x, x_stride, c + r, c_stride);
    for (; r < rows; ++r)
        dot_tile<K, 1, T>(w + r * w_stride, w_stride, x, x_stride, c + r, c_stride);
}

template <i64 K, class W>
void dot_block(const W* w, i64 w_stride, i64 rows, const Block& block, float* c, i64 c_stride) {
    constexpr i64 R = 32;  // a strip of rows that later tokens find in the cache
    for (i64 r = 0; r < rows; r += R) {
        i64 n = min(R, rows - r);
        i64 t = 0;
        const W* strip = w + r * w_stride;
        auto x = [&](i64 at) { return block.data + at * block.stride; };
        auto out = [&](i64 at) { return c + at * c_stride + r; };
        for (; t + 4 <= block.count; t += 4)
            dot_rows<K, 4>(strip, w_stride, n, x(t), block.stride, out(t), c_stride);
        if (t + 2 <= block.count) {
            dot_rows<K, 2>(strip, w_stride, n, x(t), block.stride, out(t), c_stride);
            t += 2;
        }
        if (t < block.count)
            dot_rows<K, 1>(strip, w_stride, n, x(t), block.stride, out(t), c_stride);
    }
}

// ---- Many tokens ----------------------------------------------------------------------------------

template <i64 R, i64 V, class W>
CLEAVE_INLINE void panel_depth(const float* w, i64 w_stride, const float* x, i64 depth,
                               Vec (&acc)[R][V]) {
#pragma clang loop unroll(disable)
    for (i64 k = 0; k < depth; ++k) {
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

// Lane t of every row goes to c + t * c_stride, for `tokens` lanes. Out of line: six tiles share it.
__attribute__((noinline)) inline void store_transposed(Vec (&tile)[kLanes], i64 tokens, float* c,
                                                       i64 c_stride) {
    transpose<kLanes>(tile);
    for (i64 t = 0; t < tokens; ++t) store(c + t * c_stride, tile[t]);
}

// R rows x V vectors of tokens; `tokens` of them are stored.
template <i64 K, i64 R, i64 V, class W>
void panel_tile(const W* w, i64 w_stride, const float* x, i64 tokens, float* c, i64 c_stride,
                float* converted) {
    Vec acc[R][V];
#pragma clang loop unroll(full)
    for (i64 i = 0; i < R * V; ++i) acc[i / V][i % V] = 0.0f;
    if constexpr (sizeof(W) == 4) {
        panel_depth<R, V, W>(reinterpret_cast<const float*>(w), w_stride, x, K, acc);
    } else {
        for (i64 k = 0; k < K; k += kConvertDepth) {
            i64 depth = min(kConvertDepth, K - k);
            for (i64 r = 0; r < R; ++r) {
                const W* source = w + r * w_stride + k;
                float* to = converted + r * kConvertDepth;
                i64 i = 0;
                for (; i + kLanes <= depth; i += kLanes) store(to + i, load(source + i));
                for (; i < depth; ++i) to[i] = load_one(source + i);
            }
            panel_depth<R, V, W>(converted, kConvertDepth, x + k * V * kLanes, depth, acc);
        }
    }
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

template <i64 K, i64 V, class W>
void panel_rows(const W* w, i64 w_stride, i64 rows, const float* x, i64 tokens, float* c,
                i64 c_stride, float* converted) {
    i64 r = 0;
    for (; r + kTileRows <= rows; r += kTileRows)
        panel_tile<K, kTileRows, V>(w + r * w_stride, w_stride, x, tokens, c + r, c_stride,
                                    converted);
    for (; r + 4 <= rows; r += 4)
        panel_tile<K, 4, V>(w + r * w_stride, w_stride, x, tokens, c + r, c_stride, converted);
    for (; r < rows; ++r)
        panel_tile<K, 1, V>(w + r * w_stride, w_stride, x, tokens, c + r, c_stride, converted);
}

// ---- The product ----------------------------------------------------------------------------------

// c [block.count][c_stride] from `rows` rows of w. Vectors past the last row of c are overwritten.
template <i64 K, class W>
__attribute__((noinline)) void multiply(const W* w, i64 w_stride, i64 rows, const Block& block,
                                        float* c, i64 c_stride, float* converted) {
    if (!block.packed) {
        dot_block<K>(w, w_stride, rows, block, c, c_stride);
        return;
    }
    for (i64 t = 0; t < block.count; t += kPanel) {
        const float* x = block.data + t * K;
        i64 tokens = block.count - t;
        if (tokens > kLanes)
            panel_rows<K, 2>(w, w_stride, rows, x, min(tokens, kPanel), c + t * c_stride, c_stride,
                             converted);
        else
            panel_rows<K, 1>(w, w_stride, rows, x, tokens, c + t * c_stride, c_stride, converted);
    }
}

}  // namespace cleave
