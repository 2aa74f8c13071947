// SPDX-License-Identifier: Apache-2.0
// Products of few tokens (matmul.h): vectors run along the depth, and weights stream through once,
// straight from memory.
#pragma once

#include "lanes.h"
#include "prelude.h"
#include "quantized.h"
#include "token_block.h"

namespace cleave {

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

// Whether the rows of a tile are neighbours on CPUs whose prefetchers follow one stream best. Of
// f32 one core of Zen 5 reads 38 GB/s so and 32 in runs, with eight tokens 24 and 15; weights of 16
// and 8 bits come in runs by up to a third faster there, too.
template <class Weights>
inline constexpr bool kAreNeighbours = false;
#if defined(__znver5__)
template <>
inline constexpr bool kAreNeighbours<const float*> = true;
#endif

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
    // One or two tokens use a stream of neighbours no faster than the hardware brings it.
    constexpr bool kAsks = !kAreNeighbours<const W*> || T > 2;
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
            if constexpr (kAsks) __builtin_prefetch(w + r * rows.apart * K + at + ahead, 0, 2);
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
// four 25 to 28, as of rows of 8 KB (f32, Zen 4). Below 512 bytes neighbours are faster, and where
// kAreNeighbours. Short rows defeat those prefetchers anyhow, so the rows of a tile to come are
// asked for, too; past the end of the weights that is nothing that exists, which is harmless.
template <i64 K, i64 T, class Weights, class X>
void dot_rows(Weights w, i64 rows, const X* x, i64 x_stride, float step, float* c, i64 c_stride) {
    constexpr i64 R = rows_at_once<T>(Weights()), kRowBytes = row_bytes<K>(Weights());
    constexpr i64 kTiles = tiles_ahead(R * kRowBytes);
    const i64 run = kRowBytes < 512 || kAreNeighbours<Weights> ? 1 : rows / R;
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

}  // namespace cleave
