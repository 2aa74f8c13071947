// SPDX-License-Identifier: Apache-2.0
// Products of few tokens with the sums of many: every sum runs over K in order, one element after
// the other, so that a token's bits do not depend on the tokens beside it. kLanes weight rows lie
// side by side, lane r of a vector is row r's element; rows past the last repeat it. Floating
// weights and codes are transposed as units of 32 bits and widened afterwards.
#pragma once

#include "prelude.h"
#include "quantized.h"

namespace cleave {

// A block of tokens made ready. `packed`: panels [K][kPanel] one after the other, the last one
// [K][kLanes] when that suffices, whose lanes without a token repeat the last one; the last
// `num_rest` tokens are rows [num_rest][stride] at `rest`. Otherwise rows [count][stride]. For
// products of integers the data are integers in [-255, 255], worth `step` each.
struct Block {
    static constexpr i64 kAtOnce = 4;  // tokens of the first tile; or eight (takes_eight)
    const float* data;
    i64 count;
    i64 stride;
    bool packed;
    float step;
    const float* rest = nullptr;
    i64 num_rest = 0;
};

// Out of line: compiling one takes longer than running thousands.
__attribute__((noinline)) inline void transpose_tile(Vec (&tile)[kLanes]) {
    transpose<kLanes>(tile);
}

template <class W>
CLEAVE_INLINE Vec element_of(UintN<kLanes> unit, i64 i) {
    if constexpr (sizeof(W) == 4) {
        return __builtin_bit_cast(Vec, unit);
    } else if constexpr (__is_same(W, bf16)) {
        return __builtin_bit_cast(Vec, i == 0 ? unit << 16 : unit & 0xffff0000u);
    } else if constexpr (__is_same(W, f16)) {
        HalfBitsN<kLanes> bits =
            __builtin_convertvector(unit >> static_cast<u32>(16 * i), HalfBitsN<kLanes>);
        return load(reinterpret_cast<const f16*>(&bits));
    } else {
        return from_f8e4m3<kLanes>(
            __builtin_bit_cast(IntN<kLanes>, unit >> static_cast<u32>(8 * i)) & 255);
    }
}

template <i64 K, i64 kTiles, class W>
struct FloatingTile {
    static constexpr i64 kUnit = 4 / sizeof(W), kStep = kLanes * kUnit;
    // Short rows defeat the hardware's prefetcher: the next tile's rows are asked for into the
    // second-level cache.
    static constexpr i64 kAhead = kTiles * kLanes * K * static_cast<i64>(sizeof(W)) <= (512 << 10)
                                      ? kTiles * kLanes * K
                                      : 1024;
    const W* row[kLanes];

    CLEAVE_INLINE void set(const W* w, i64 first, i64 rows) {
        for (i64 r = 0; r < kLanes; ++r) row[r] = w + min(first + r, rows - 1) * K;
    }

    // Calls add(g, k, element k of each row of tile g) for every k, in order.
    template <class Add>
    static CLEAVE_INLINE void each(FloatingTile (&tiles)[kTiles], const Add& add) {
        constexpr i64 kWhole = K / kStep * kStep;
#pragma clang loop unroll(disable)
        for (i64 k = 0; k < kWhole; k += kStep)
#pragma clang loop unroll(full)
            for (i64 g = 0; g < kTiles; ++g) tiles[g].template step<kStep>(g, k, add);
        if constexpr (kWhole < K)
#pragma clang loop unroll(full)
            for (i64 g = 0; g < kTiles; ++g) tiles[g].template step<K - kWhole>(g, kWhole, add);
    }
    template <i64 kCount, class Add>
    CLEAVE_INLINE void step(i64 g, i64 k, const Add& add) const {
        Vec tile[kLanes];
#pragma clang loop unroll(full)
        for (i64 r = 0; r < kLanes; ++r) {
            // Past the end of the weights this asks for nothing that exists, which is harmless.
            __builtin_prefetch(row[r] + k + kAhead, 0, 2);
            tile[r] = 0.0f;
            __builtin_memcpy(&tile[r], row[r] + k, kCount * sizeof(W));
        }
        transpose<kLanes>(tile);
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kCount; ++i)
            add(g, k + i,
                element_of<W>(__builtin_bit_cast(UintN<kLanes>, tile[i / kUnit]), i % kUnit));
    }
};

// Quantised rows: codes are transposed as units of 32 bits, scales and zero points as floats.
template <i64 K, i64 kTiles, class Q>
struct QuantizedTile {
    static constexpr i64 kUnits = Q::kGroupBytes / 4;  // of a group
    static constexpr i64 kPieces = max(1, kUnits / kLanes);
    static constexpr i64 kStep = max(1, kLanes / kUnits) * kGroup;  // elements transposed together
    static constexpr i64 kStrip = kLanes * Q::kBlockSize;           // whose scales are
    static constexpr i64 kAhead =
        kTiles * kLanes * Q::kRowBytes <= (512 << 10) ? kTiles * kLanes * Q::kRowBytes : 4096;
    QuantizedRows<Q> w;
    i64 last;  // row
    Vec scales[kLanes], zeros[kLanes];
    UintN<kLanes> units[kPieces * kLanes];

    CLEAVE_INLINE void set(QuantizedRows<Q> weights, i64 first, i64 rows) {
        first = min(first, rows - 1);
        w = skip_rows<K>(weights, first);
        last = rows - 1 - first;
    }

    template <class Add>
    static CLEAVE_INLINE void each(QuantizedTile (&tiles)[kTiles], const Add& add) {
        if constexpr (!Q::kUniform) {
            for (i64 k = 0; k < K; k += kLanes)
                for (i64 g = 0; g < kTiles; ++g) tiles[g].ragged_step(g, k, add);
            return;
        }
        for (i64 k = 0; k < K; k += kStep) {
#pragma clang loop unroll(disable)
            for (i64 g = 0; g < kTiles; ++g) {
                if (k % kStrip == 0) tiles[g].read_scales(k / Q::kBlockSize);
                tiles[g].read_codes(k);
            }
#pragma clang loop unroll(disable)
            for (i64 at = k; at < min(k + kStep, K); at += kGroup) {
                const i64 unit = (at - k) / kGroup * kUnits;
#pragma clang loop unroll(full)
                for (i64 g = 0; g < kTiles; ++g) tiles[g].template half_group<0>(g, unit, at, add);
                if (at + kHalf < K)
#pragma clang loop unroll(full)
                    for (i64 g = 0; g < kTiles; ++g)
                        tiles[g].template half_group<1>(g, unit, at, add);
            }
        }
    }

    // Of blocks [block, block + kLanes), or those of them that there are.
    CLEAVE_INLINE void read_scales(i64 block) {
        constexpr i64 kRest = Q::kBlocks % kLanes;
        if (Q::kBlocks - block >= kLanes)
            read_scales_of<kLanes>(block);
        else if constexpr (kRest > 0)
            read_scales_of<kRest>(block);
    }
    template <i64 kCount>
    CLEAVE_INLINE void read_scales_of(i64 block) {
#pragma clang loop unroll(disable)
        for (i64 r = 0; r < kLanes; ++r) {
            __builtin_prefetch(w.scales + (r + kTiles * kLanes) * Q::kBlocks + block, 0, 2);
            scales[r] = w.template scales_from<kCount>(min(r, last), block);
        }
        transpose_tile(scales);
        if constexpr (!Q::kSameZero) {
#pragma clang loop unroll(disable)
            for (i64 r = 0; r < kLanes; ++r)
                zeros[r] = w.template zeros_from<kCount>(min(r, last), block);
            transpose_tile(zeros);
        }
    }

    CLEAVE_INLINE void read_codes(i64 k) {
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kPieces; ++i)
            read_units(k / kGroup * Q::kGroupBytes + i * kLanes * 4, units + i * kLanes);
    }
    CLEAVE_INLINE void read_units(i64 from, UintN<kLanes>* to) const {
        constexpr i64 kBytes = kLanes * 4, kRest = Q::kRowBytes % kBytes;
        Vec tile[kLanes];
#pragma clang loop unroll(full)
        for (i64 r = 0; r < kLanes; ++r) {
            const u8* p = w.codes + min(r, last) * Q::kRowBytes + from;
            __builtin_prefetch(p + kAhead, 0, 2);
            if (kRest == 0 || from + kBytes <= Q::kRowBytes) {
                __builtin_memcpy(&tile[r], p, kBytes);
            } else {
                tile[r] = 0.0f;
                __builtin_memcpy(&tile[r], p, kRest);
            }
        }
        transpose<kLanes>(tile);
#pragma clang loop unroll(full)
        for (i64 i = 0; i < kLanes; ++i) to[i] = __builtin_bit_cast(UintN<kLanes>, tile[i]);
    }
    template <i64 kWhich, class Add>
    CLEAVE_INLINE void half_group(i64 g, i64 unit, i64 at, const Add& add) const {
        const i64 first = at + kWhich * kHalf, block = first % kStrip / Q::kBlockSize;
        const Vec scale = scales[block];
        auto element = [&](i64 i) __attribute__((always_inline)) {
            Vec code = Q::code(units + unit, kWhich * kHalf + i);
            if constexpr (Q::kSameZero)
                code = code - w.zero(0, 0);
            else
                code = code - zeros[block];
            add(g, first + i, code * scale);
        };
        if (K % kHalf == 0 || first + kHalf <= K) {
#pragma clang loop unroll(full)
            for (i64 i = 0; i < kHalf; ++i) element(i);
        } else {
#pragma clang loop unroll(disable)
            for (i64 i = 0; first + i < K; ++i) element(i);
        }
    }

    // Blocks that no half of a group divides: row by row, transposed as floats.
    template <class Add>
    CLEAVE_INLINE void ragged_step(i64 g, i64 k, const Add& add) const {
        Vec tile[kLanes];
#pragma clang loop unroll(disable)
        for (i64 r = 0; r < kLanes; ++r)
            tile[r] =
                w.values(min(r, last), k / kGroup * kGroup, k % kGroup / kHalf, k % kHalf / kLanes);
        transpose_tile(tile);
#pragma clang loop unroll(disable)
        for (i64 i = 0; i < min(kLanes, K - k); ++i) add(g, k + i, tile[i]);
    }
};

template <class Weights>
inline constexpr bool kNarrow = !__is_same(Weights, const float*);
template <i64 K, i64 kTiles, class W>
FloatingTile<K, kTiles, W> tile_of(const W*);
template <i64 K, i64 kTiles, class Q>
QuantizedTile<K, kTiles, Q> tile_of(QuantizedRows<Q>);

// Sums of all rows for tokens [first, first + T), or those of them that there are.
template <i64 K, i64 T, class Weights>
void lane_rows(Weights w, i64 rows, const Block& block, i64 first, float* c, i64 c_stride) {
    constexpr i64 G = T <= 4 && kLanes == 16 && kNarrow<Weights>
                          ? 2
                          : 1;  // tiles side by side hide the FMA's latency
    const i64 count = min(block.count - first, T);
    const float* x[T];
#pragma clang loop unroll(full)
    for (i64 t = 0; t < T; ++t) x[t] = block.data + (first + min(t, count - 1)) * block.stride;
#pragma clang loop unroll(disable)
    for (i64 r = 0; r < rows; r += G * kLanes) {
        Vec sums[G][T];
        decltype(tile_of<K, G>(w)) tiles[G];
#pragma clang loop unroll(full)
        for (i64 i = 0; i < G * T; ++i) sums[i / T][i % T] = 0.0f;
#pragma clang loop unroll(full)
        for (i64 g = 0; g < G; ++g) tiles[g].set(w, r + g * kLanes, rows);
        decltype(tile_of<K, G>(w))::each(
            tiles, [&](i64 g, i64 k, Vec weight) __attribute__((always_inline)) {
#pragma clang loop unroll(full)
                for (i64 t = 0; t < T; ++t) sums[g][t] += weight * x[t][k];
            });
#pragma clang loop unroll(full)
        for (i64 i = 0; i < G * T; ++i) {
            const i64 row = r + i / T * kLanes, t = i % T;
            if (row < rows && t < count) store(c + (first + t) * c_stride + row, sums[i / T][t]);
        }
    }
}

template <i64 K, class Weights>
void lane_block(Weights w, i64 rows, const Block& block, float* c, i64 c_stride) {
    constexpr i64 R = 32;  // a strip of rows that later tokens find in the cache
    constexpr i64 kMost = kLanes == 16 ? 8 : 4;
    for (i64 r = 0; r < rows; r += R) {
        const i64 n = min(R, rows - r);
        const auto strip = skip_rows<K>(w, r);
        i64 t = 0;
        for (; t + 4 < block.count; t += kMost)
            lane_rows<K, kMost>(strip, n, block, t, c + r, c_stride);
        if (t + 2 < block.count)
            lane_rows<K, 4>(strip, n, block, t, c + r, c_stride);
        else if (t + 1 < block.count)
            lane_rows<K, 2>(strip, n, block, t, c + r, c_stride);
        else if (t < block.count)
            lane_rows<K, 1>(strip, n, block, t, c + r, c_stride);
    }
}

}  // namespace cleave
