// SPDX-License-Identifier: Apache-2.0
// c[t][r] = dot(w[r], x[t]) for a block of weight rows and a block of tokens, K features deep.
// Weights are f32, f16, bf16 or f8e4m3, row major, or quantised (quantized.h); everything else is
// f32. Two ways. Few tokens (decode): vectors run along K, weights stream through once, straight
// from memory. Many tokens (prefill): the block of x is transposed once into panels of 1 or 2
// vectors of tokens, and a tile of kTileRows rows x one panel accumulates in registers over the
// whole depth, with no reduction at the end. A product of integers (Quantized::kDynamic) is exact:
// no f32 sum is longer than its integers stay below 2^24, then it goes on in int32.
#pragma once

#include "lanes.h"
#include "norm.h"
#include "prelude.h"
#include "quantized.h"

namespace cleave {

inline constexpr i64 kPanel = 2 * kLanes;  // tokens of a full panel
inline constexpr i64 kConvertDepth = 256;  // of the f32 copy of a narrow tile

// Tokens of a block up to which vectors run along K. Weights of 16 bits are widened in registers
// there, and for panels once more in memory. Codes are unpacked for every four tokens there, for
// panels once. With kReproducible the sums of few tokens have the panels' order, and cost more.
template <bool kReproducible, class... Weights>
constexpr i64 dot_tokens() {
    if (kReproducible) return 8;
    if (((sizeof(Weights) == 4 && !kIsQuantized<Weights>) || ...)) return kLanes == 16 ? 10 : 8;
    return ((sizeof(Weights) == 2 && !kIsQuantized<Weights>) && ...) ? 32 : 12;
}

// Tokens past the last whole vector of them that are rows, as they are few: in a panel they would
// cost as much as a whole vector.
template <bool kReproducible>
constexpr i64 kMostRest = kReproducible  ? 0
                          : kLanes == 16 ? 10
                                         : kLanes / 4;

// Rows of activations: row t is x + (rows ? rows[t] : t) * stride.
struct Rows {
    const float* x;
    i64 stride;
    const i32* rows;
    CLEAVE_INLINE const float* row(i64 t) const { return x + (rows ? rows[t] : t) * stride; }
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
    return sizeof(W) == 4 && !kIsQuantized<W> ? 0 : kTileRows * kConvertDepth;
}

// ---- Making a block of tokens ready

// Transposes tokens [0, count) of `rows`, scaled by scale[t] and the norm's weight, into
// panel[k][kWidth].
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
        transpose_tile(tile);
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kLanes; ++i) store(panel + (k + i) * stride, tile[i]);
    }
#pragma clang loop vectorize(disable) unroll(disable)
    for (; k < K; ++k) {
        float weight = 1.0f;
        if constexpr (Norm::kPresent) weight = load_one(norm.weight + k) + norm.offset;
#pragma clang loop vectorize(disable) unroll(disable)
        for (i64 t = 0; t < kLanes; ++t) panel[k * stride + t] = rows[t][k] * scale[t] * weight;
    }
}

template <i64 K, class Norm>
void pack(const Rows& input, i64 first, i64 count, const Norm& norm, float* out) {
    for (i64 t0 = 0; t0 < count; t0 += kLanes) {
        const float* rows[kLanes];
        float scale[kLanes];
#pragma clang loop vectorize(disable) unroll(disable)
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

// DynamicQuantizeLinear: a step of the 256 between the smallest and the largest element, and the
// place of 0. https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
struct NoSteps {
    static constexpr bool kPresent = false;
};
struct Steps {
    static constexpr bool kPresent = true;
    float step;
    float zero;
};

// Over the whole tensor: all `count` rows, as the norm leaves them. `row`: K floats.
template <i64 K, class Norm>
CLEAVE_INLINE Steps steps_of(const Rows& input, i64 count, const Norm& norm, float* row) {
    float low = 0.0f, high = 0.0f;
    for (i64 t = 0; t < count; ++t) {
        const float* x = input.row(t);
        if constexpr (Norm::kPresent) {
            rms_norm_row<K>(x, norm, row);
            x = row;
        }
        for (i64 i = 0; i < K; ++i) {
            low = x[i] < low ? x[i] : low;
            high = x[i] > high ? x[i] : high;
        }
    }
    float step = (high - low) / 255.0f;
    if (step == 0.0f) return {0.0f, 0.0f};
    float zero = -low / step;
    zero = zero > 255.0f ? 255.0f : zero;
    return {step, __builtin_elementwise_roundeven(zero)};
}

// x as the difference of its integer and the zero point.
CLEAVE_INLINE void quantize(float* x, i64 count, const Steps& steps) {
    for (i64 i = 0; i < count; ++i) {
        float q = steps.step == 0.0f
                      ? 0.0f
                      : __builtin_elementwise_roundeven(x[i] / steps.step) + steps.zero;
        q = q < 0.0f ? 0.0f : q;
        q = q > 255.0f ? 255.0f : q;
        x[i] = q - steps.zero;
    }
}

// Tokens [first, first + count) as rows: where they are, or in `scratch`.
template <i64 K, bool kCopy, class Norm>
CLEAVE_INLINE Block prepare_rows(const Rows& input, i64 first, i64 count, const Norm& norm,
                                 float* scratch) {
    if constexpr (!Norm::kPresent) {
        if (!kCopy && !input.rows) return {input.row(first), count, input.stride, false, 1.0f};
        for (i64 t = 0; t < count; ++t)
            __builtin_memcpy(scratch + t * K, input.row(first + t), K * sizeof(float));
    } else {
        for (i64 t = 0; t < count; ++t)
            rms_norm_row<K>(input.row(first + t), norm, scratch + t * K);
    }
    return {scratch, count, K, false, 1.0f};
}

template <i64 K, i64 kDotTokens, i64 kMostRest, class Norm, class DynamicSteps>
CLEAVE_INLINE Block prepare(const Rows& input, i64 first, i64 count, const Norm& norm,
                            const DynamicSteps& steps, float* scratch) {
    if constexpr (DynamicSteps::kPresent) {
        if (count <= kDotTokens) {
            prepare_rows<K, true>(input, first, count, norm, scratch);
            quantize(scratch, count * K, steps);
            return {scratch, count, K, false, steps.step};
        }
        pack<K>(input, first, count, norm, scratch);
        // The last panel may be half a one.
        i64 rest = count % kPanel;
        i64 lanes = count - rest + (rest == 0 ? 0 : rest > kLanes ? kPanel : kLanes);
        quantize(scratch, lanes * K, steps);
        return {scratch, count, 0, true, steps.step};
    } else {
        if (count <= kDotTokens) return prepare_rows<K, false>(input, first, count, norm, scratch);
        i64 rest = count > kLanes ? count % kLanes : 0;
        if (rest > kMostRest) rest = 0;
        const i64 packed = count - rest;
        pack<K>(input, first, packed, norm, scratch);
        const Block few =
            prepare_rows<K, false>(input, first + packed, rest, norm, scratch + packed * K);
        return {scratch, count, few.stride, true, 1.0f, few.data, rest};
    }
}

// ---- Few tokens

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

// The rows of a tile stand `apart` rows from one another, and so do their sums; each one's row of
// the tile that is asked for into the second-level cache is `ahead` rows past it.
struct TileRows {
    i64 apart, ahead;
};

// Tiles to read before the one that is asked for: 1, or as many as make 8 KB.
constexpr i64 tiles_ahead(i64 tile_bytes) { return ceil_div(8192, tile_bytes); }
// A tile larger than this is asked for a little at a time: from what is read to what is asked for.
inline constexpr i64 kMostTileBytes = 256 << 10, kBytesAhead = 4096;

template <i64 K, i64 R, i64 T, class W>
CLEAVE_INLINE void dot_tile(const W* w, const TileRows& rows, const float* x, i64 x_stride, float,
                            float* c, i64 c_stride) {
    // Of one token two sums a row, as registers allow, for any R: a row's bits do not depend on
    // where it stands.
    constexpr i64 U = T == 1 && kLanes >= 16 ? 2 : 1;
    constexpr i64 kSize = sizeof(W);
    const i64 ahead = R * K * kSize <= kMostTileBytes ? rows.ahead * K : kBytesAhead / kSize;
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
            __builtin_prefetch(w + r * rows.apart * K + at + ahead, 0, 2);
            Vec ws = load(w + r * rows.apart * K + at);
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
            float rest =
                dot_rest<K - kWhole>(w + r * rows.apart * K + kWhole, x + t * x_stride + kWhole);
            c[t * c_stride + r * rows.apart] = sum(total) + rest;
        }
    }
}

// Sums of one tile of quantised rows; of integers in f32 where that is exact, then in int32.
template <i64 R, i64 T, class Q>
struct QuantizedSums {
    // Two sums a dot product hide the FMA's latency, as far as registers go.
    static constexpr i64 U = R * T >= 8 ? 1 : 2;
    Vec acc[R][T][U];
    IntN<kLanes> whole[R][T];

    CLEAVE_INLINE void clear() {
#pragma clang loop unroll(full)
        for (i64 i = 0; i < R * T * U; ++i) acc[i / (T * U)][i / U % T][i % U] = 0.0f;
    }
    CLEAVE_INLINE Vec floats(i64 r, i64 t) const {
        if constexpr (U == 2) return acc[r][t][0] + acc[r][t][1];
        return acc[r][t][0];
    }
    CLEAVE_INLINE void flush() {
#pragma clang loop unroll(full)
        for (i64 i = 0; i < R * T; ++i)
            whole[i / T][i % T] += __builtin_convertvector(floats(i / T, i % T), IntN<kLanes>);
        clear();
    }
    // The group of `w` at column `at` times kGroup features of each token.
    CLEAVE_INLINE void add(QuantizedRows<Q> w, i64 apart, i64 at, const float* x, i64 x_stride) {
#pragma clang loop unroll(full)
        for (i64 i = 0; i < 2 * kGroupSteps; ++i) {
            i64 half = i / kGroupSteps, step = i % kGroupSteps;
            Vec xs[T];
#pragma clang loop unroll(full)
            for (i64 t = 0; t < T; ++t)
                xs[t] = load(x + t * x_stride + half * kHalf + step * kLanes);
#pragma clang loop unroll(full)
            for (i64 r = 0; r < R; ++r) {
                Vec ws = w.values(r * apart, at, half, step);
#pragma clang loop unroll(full)
                for (i64 t = 0; t < T; ++t) acc[r][t][i % U] += ws * xs[t];
            }
        }
    }
};

template <i64 K, i64 R, i64 T, class Q>
CLEAVE_INLINE void dot_tile(QuantizedRows<Q> w, const TileRows& rows, const float* x, i64 x_stride,
                            float step, float* c, i64 c_stride) {
    constexpr i64 kWhole = K / kGroup * kGroup;
    const i64 ahead = R * Q::kRowBytes <= kMostTileBytes ? rows.ahead * Q::kRowBytes : kBytesAhead;
    // A lane takes kGroupSteps products of half a group, each at most 255 * 255: 2^24 holds 258 of
    // them.
    constexpr i64 kExact = 256 / (2 * kGroupSteps) * kGroup;
    QuantizedSums<R, T, Q> sums;
    sums.clear();
    if constexpr (Q::kDynamic)
        for (i64 i = 0; i < R * T; ++i) sums.whole[i / T][i % T] = 0;
    constexpr i64 kStrip = Q::kDynamic ? kExact : max(kWhole, 1);
    for (i64 k0 = 0; k0 < kWhole; k0 += kStrip) {
#pragma clang loop unroll(disable)
        for (i64 k = k0; k < min(k0 + kStrip, kWhole); k += kGroup) {
#pragma clang loop unroll(full)
            for (i64 r = 0; r < R; ++r)
                __builtin_prefetch(
                    w.codes + r * rows.apart * Q::kRowBytes + k / kGroup * Q::kGroupBytes + ahead,
                    0, 2);
            sums.add(w, rows.apart, k, x + k, x_stride);
        }
        if constexpr (Q::kDynamic) sums.flush();
    }
    if constexpr (kWhole < K) {
        float rest[T][kGroup] = {};
        for (i64 t = 0; t < T; ++t)
            __builtin_memcpy(rest[t], x + t * x_stride + kWhole, (K - kWhole) * sizeof(float));
        sums.add(w, rows.apart, kWhole, rest[0], kGroup);
        if constexpr (Q::kDynamic) sums.flush();
    }
#pragma clang loop unroll(full)
    for (i64 i = 0; i < R * T; ++i) {
        i64 r = i / T, t = i % T;
        float& out = c[t * c_stride + r * rows.apart];
        if constexpr (Q::kDynamic)
            out = static_cast<float>(sum(sums.whole[r][t])) * (step * w.scale(r * rows.apart, 0));
        else
            out = sum(sums.floats(r, t));
    }
}

// Rows that are read at once: two of f32 for eight tokens fill the registers. Of eight one core
// reads 29 GB/s where of four it reads 25 and a plain loop 32 (f32, hidden 768, Zen 4); narrower
// weights gain nothing, or take too many registers.
template <i64 T, class Weights>
constexpr i64 rows_at_once(Weights) {
    return 4;
}
template <i64 T>
constexpr i64 rows_at_once(const float*) {
    return T == 8 ? 2 : T == 1 || (T == 2 && kLanes >= 16) ? 8 : 4;
}

// Bytes of a row's weights, without their scales.
template <i64 K, class W>
constexpr i64 row_bytes(const W*) {
    return K * static_cast<i64>(sizeof(W));
}
template <i64 K, class Q>
constexpr i64 row_bytes(QuantizedRows<Q>) {
    return Q::kRowBytes;
}

// A tile has a row of each of R runs of rows that follow one another, which the hardware's
// prefetchers see as R streams: of R neighbours of 3 KB one core read 20 to 25 GB/s, of runs of
// four 25 to 28, as of rows of 8 KB (f32, Zen 4). Below 512 bytes neighbours are faster. Short rows
// defeat those prefetchers anyhow, so the rows of a tile to come are asked for, too; past the end
// of the weights that is nothing that exists, which is harmless.
template <i64 K, i64 T, class Weights, class X>
void dot_rows(Weights w, i64 rows, const X* x, i64 x_stride, float step, float* c, i64 c_stride) {
    constexpr i64 R = rows_at_once<T>(Weights()), kRowBytes = row_bytes<K>(Weights());
    constexpr i64 kTiles = tiles_ahead(R * kRowBytes);
    const i64 run = kRowBytes < 512 ? 1 : rows / R;
    i64 r = 0;
#pragma clang loop unroll(disable)
    for (; r + R <= rows; r += R * run)
#pragma clang loop unroll(disable)
        for (i64 i = 0; i < run; ++i) {
            const i64 to_come = i + kTiles, ahead = to_come / run * R * run + to_come % run - i;
            dot_tile<K, R, T>(skip_rows<K>(w, r + i), {run, ahead}, x, x_stride, step, c + r + i,
                              c_stride);
        }
    if constexpr (R > 4)
        for (; r + 4 <= rows; r += 4)
            dot_tile<K, 4, T>(skip_rows<K>(w, r), {1, 4}, x, x_stride, step, c + r, c_stride);
#pragma clang loop unroll(disable)
    for (; r < rows; ++r)
        dot_tile<K, 1, T>(skip_rows<K>(w, r), {1, 1}, x, x_stride, step, c + r, c_stride);
}

// Whether eight tokens are multiplied at once: where the tokens are made for it, and of f32 where
// registers and 24 KB of the first-level cache hold them.
template <i64 K, class Tokens, class Weights>
constexpr bool takes_eight(Weights) {
    return Tokens::kAtOnce > 4;
}
template <i64 K, class Tokens>
constexpr bool takes_eight(const float*) {
    return Tokens::kAtOnce > 4 || (kLanes == 16 && 8 * K * 4 <= (24 << 10));
}

// `Tokens`: a Block, or the tokens of rounded_dots.h.
template <i64 K, class Weights, class Tokens>
void dot_block(Weights w, i64 rows, const Tokens& block, float* c, i64 c_stride) {
    // A strip of rows that later tokens find in the cache.
    const i64 most = block.count == 1 ? rows : 32;
    for (i64 r = 0; r < rows; r += most) {
        i64 n = min(most, rows - r);
        i64 t = 0;
        const auto strip = skip_rows<K>(w, r);
        auto x = [&](i64 at) { return block.data + at * block.stride; };
        auto out = [&](i64 at) { return c + at * c_stride + r; };
        // While weights come from memory more tokens cost little; from the cache fewer are faster.
        if constexpr (takes_eight<K, Tokens>(Weights()))
            if (block.count >= 8) {
                dot_rows<K, 8>(strip, n, x(0), block.stride, block.step, out(0), c_stride);
                t = 8;
            }
        for (; t + 4 <= block.count; t += 4)
            dot_rows<K, 4>(strip, n, x(t), block.stride, block.step, out(t), c_stride);
        if (t + 2 <= block.count) {
            dot_rows<K, 2>(strip, n, x(t), block.stride, block.step, out(t), c_stride);
            t += 2;
        }
        if (t < block.count)
            dot_rows<K, 1>(strip, n, x(t), block.stride, block.step, out(t), c_stride);
    }
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
