// SPDX-License-Identifier: Apache-2.0
// Products on rounded activations (rounded.h) of many tokens by a matrix unit (tiles.h). Tokens lie
// in panels of 16, in units of 32 bits, a token a lane; weights are read as they are stored, but
// for codes of 4 bits, which become bytes. Products of integers have the bits of strips: exact in a
// group, then f32, one group after the other. Sums of bf16 are in the unit's order: of each 32
// features.
#pragma once

#include "prelude.h"
#include "quantized.h"
#include "rounded.h"
#include "tiles.h"

namespace cleave {

template <Rounding kRounding>
inline constexpr bool kHasTiles = kRounding == Rounding::kInt8   ? kHasInt8Tiles
                                  : kRounding == Rounding::kBf16 ? kHasBf16Tiles
                                                                 : false;

constexpr i64 num_panels(i64 tokens) { return ceil_div(tokens, kTileSide); }

// ---- Panels of 16 tokens

// int8: codes [groups][8 units][16], then of each group a scale and the sum of its codes, [groups]
// [16].
template <i64 K>
struct Int8Panel {
    static constexpr i64 kGroups = Int8Row<K>::kGroups;
    static constexpr i64 kCodes = kGroup * kTileSide, kWords = 4 * kTileSide;  // bytes of a group
    static constexpr i64 kScales = kGroups * kCodes, kSums = kScales + kGroups * kWords;
    static constexpr i64 kBytes = kSums + kGroups * kWords;

    // Token `t` from its K features.
    static CLEAVE_INLINE void put(const float* x, i64 t, u8* panel) {
#pragma clang loop unroll(disable)
        for (i64 g = 0; g < kGroups; ++g) {
            float group[kGroup] = {};
            __builtin_memcpy(group, x + g * kGroup, min(kGroup, K - g * kGroup) * sizeof(float));
            u8 codes[kGroup];
            float scale;
            i32 sum_of;
            round_group(group, codes, &scale, &sum_of);
            for (i64 unit = 0; unit < kGroup / 4; ++unit)
                __builtin_memcpy(panel + g * kCodes + (unit * kTileSide + t) * 4, codes + unit * 4,
                                 4);
            __builtin_memcpy(panel + kScales + g * kWords + t * 4, &scale, 4);
            __builtin_memcpy(panel + kSums + g * kWords + t * 4, &sum_of, 4);
        }
    }
    static CLEAVE_INLINE void finish(u8*) {}
};

// bf16: [steps][16 pairs][16], zeros past the last feature.
template <i64 K>
struct Bf16Panel {
    static constexpr i64 kStep = 32;  // features of a row of a tile
    static constexpr i64 kSteps = ceil_div(K, kStep), kStepBytes = kTileSide * 64;
    static constexpr i64 kBytes = kSteps * kStepBytes;

    // Until it is finished, a token is a row of each step.
    static CLEAVE_INLINE void put(const float* x, i64 t, u8* panel) {
#pragma clang loop unroll(disable)
        for (i64 s = 0; s < kSteps; ++s) {
            float step[kStep] = {};
            __builtin_memcpy(step, x + s * kStep, min(kStep, K - s * kStep) * sizeof(float));
            bf16* to = reinterpret_cast<bf16*>(panel + s * kStepBytes + t * 64);
            store<16>(to, load<16>(step));
            store<16>(to + 16, load<16>(step + 16));
        }
    }
    static CLEAVE_INLINE void finish(u8* panel) {
#pragma clang loop unroll(disable)
        for (i64 s = 0; s < kSteps; ++s) {
            float* step = reinterpret_cast<float*>(panel + s * kStepBytes);
            FloatN<kTileSide> units[kTileSide];
            for (i64 i = 0; i < kTileSide; ++i) units[i] = load<16>(step + i * kTileSide);
            transpose<kTileSide>(units);
            for (i64 i = 0; i < kTileSide; ++i) store<16>(step + i * kTileSide, units[i]);
        }
    }
};

template <i64 K, Rounding kRounding>
struct PanelOf {
    using Type = Int8Panel<K>;
};
template <i64 K>
struct PanelOf<K, Rounding::kBf16> {
    using Type = Bf16Panel<K>;
};

// ---- Sums of a tile

// Sums [16 rows][16 tokens] of rows from `c` on; the first `tokens` are there.
CLEAVE_INLINE void store_sums(FloatN<kTileSide> (&sums)[kTileSide], i64 tokens, float* c,
                              i64 c_stride) {
    transpose<kTileSide>(sums);
#pragma clang loop unroll(disable)
    for (i64 t = 0; t < min(kTileSide, tokens); ++t) store<16>(c + t * c_stride, sums[t]);
}

// ---- bf16

// Of features that stay in the first-level cache while all tokens meet them; sums of the others are
// carried from one run of steps to the next.
inline constexpr i64 kTileSteps = 16;

// Scratch floats beside the panels: two tiles of sums for each panel.
template <i64 K>
constexpr i64 bf16_tile_floats(i64 tokens) {
    return Bf16Panel<K>::kSteps > kTileSteps ? num_panels(tokens) * 2 * kTileSide * kTileSide : 0;
}

template <i64 K>
struct Bf16Tiles {
    using Panel = Bf16Panel<K>;
    static constexpr i64 kSums = kTileSide * kTileSide;
    Tiles<64> tiles;
    alignas(64) u8 copy[2][kTileSide * 64];

    // Step `s` of 16 rows of w, of which `there` exist: the last one stands for those past it.
    template <i64 kTile>
    CLEAVE_INLINE void load_weights(const bf16* w, i64 there, i64 s) {
        const bf16* from = w + s * Panel::kStep;
        const i64 features = min(Panel::kStep, K - s * Panel::kStep);
        if (there >= kTileSide && features == Panel::kStep)
            return tiles.template load<kTile>(from, K * 2);
        u8* rows = copy[kTile - 4];
        __builtin_memset(rows, 0, kTileSide * 64);
        for (i64 r = 0; r < kTileSide; ++r)
            __builtin_memcpy(rows + r * 64, from + min(r, there - 1) * K, features * 2);
        tiles.template load<kTile>(rows, 64);
    }

    // Sums of R x T tiles over steps [begin, end), from zero or from what `sums` holds.
    template <i64 R, i64 T>
    CLEAVE_INLINE void multiply(const bf16* w, i64 there, i64 begin, i64 end, const u8* x,
                                float* sums) {
        each<R, T>([&]<i64 kTile>() __attribute__((always_inline)) {
            if (begin == 0)
                tiles.template clear<kTile>();
            else
                tiles.template load<kTile>(sums + kTile * kSums, 64);
        });
#pragma clang loop unroll(disable)
        for (i64 s = begin; s < end; ++s) {
            load_weights<4>(w, there, s);
            if constexpr (R == 2) load_weights<5>(w + kTileSide * K, there - kTileSide, s);
            tiles.template load<6>(x + s * Panel::kStepBytes, 64);
            if constexpr (T == 2)
                tiles.template load<7>(x + Panel::kBytes + s * Panel::kStepBytes, 64);
            tiles.template dot_bf16<0, 4, 6>();
            if constexpr (T == 2) tiles.template dot_bf16<1, 4, 7>();
            if constexpr (R == 2) tiles.template dot_bf16<2, 5, 6>();
            if constexpr (R == 2 && T == 2) tiles.template dot_bf16<3, 5, 7>();
        }
        each<R, T>([&]<i64 kTile>() __attribute__((always_inline)) {
            tiles.template store<kTile>(sums + kTile * kSums, 64);
        });
    }
    // The tiles of sums that R of weights and T of tokens meet in.
    template <i64 R, i64 T, class Visit>
    static CLEAVE_INLINE void each(const Visit& visit) {
        visit.template operator()<0>();
        if constexpr (T == 2) visit.template operator()<1>();
        if constexpr (R == 2) visit.template operator()<2>();
        if constexpr (R == 2 && T == 2) visit.template operator()<3>();
    }

    template <i64 R>
    CLEAVE_INLINE void rows(const bf16* w, i64 there, const u8* x, i64 count, float* carried,
                            float* c, i64 c_stride) {
        alignas(64) float own[4 * kSums];
        for (i64 begin = 0; begin < Panel::kSteps; begin += kTileSteps) {
            const i64 end = min(begin + kTileSteps, Panel::kSteps);
#pragma clang loop unroll(disable)
            for (i64 t = 0; t < count; t += 2 * kTileSide) {
                float* sums =
                    Panel::kSteps > kTileSteps ? carried + t / kTileSide * 2 * kSums : own;
                const u8* panel = x + t / kTileSide * Panel::kBytes;
                if (count - t > kTileSide)
                    multiply<R, 2>(w, there, begin, end, panel, sums);
                else
                    multiply<R, 1>(w, there, begin, end, panel, sums);
                if (end < Panel::kSteps) continue;
                for (i64 i = 0; i < R * 2; ++i) {
                    const i64 first = t + i % 2 * kTileSide;
                    if (first >= count) continue;
                    FloatN<kTileSide> tile[kTileSide];
                    for (i64 r = 0; r < kTileSide; ++r)
                        tile[r] = load<16>(sums + i * kSums + r * kTileSide);
                    store_sums(tile, count - first, c + first * c_stride + i / 2 * kTileSide,
                               c_stride);
                }
            }
        }
    }
};

template <i64 K>
CLEAVE_INLINE void multiply_by_tiles(const bf16* w, i64 rows, const u8* x, i64 count,
                                     float* scratch, float* c, i64 c_stride) {
    Bf16Tiles<K> product;
    for (i64 r = 0; r < rows; r += 2 * kTileSide)
        if (rows - r > kTileSide)
            product.template rows<2>(w + r * K, rows - r, x, count, scratch, c + r, c_stride);
        else
            product.template rows<1>(w + r * K, rows - r, x, count, scratch, c + r, c_stride);
}

// ---- int8

// Of 16 rows and some groups: scales and zero points [groups][16], and codes as bytes [groups][16]
// [32] where they are stored otherwise.
template <i64 K, class Q>
struct CodeTiles {
    using Panel = Int8Panel<K>;
    static constexpr bool kPacked = Q::kGroupBytes < kGroup;
    static constexpr i64 kOfGroup =
        kTileSide * (1 + (Q::kSameZero ? 0 : 1) + (kPacked ? kGroup / 4 : 0));  // words
    // Groups at once: as many as stay in the first-level cache. Sums are carried to the next.
    static constexpr i64 kMostWords = 4096;
    static constexpr i64 kGroups = min(Panel::kGroups, kMostWords / kOfGroup);
    static constexpr i64 kScales = 0, kZeros = kGroups * kTileSide;
    static constexpr i64 kBytes = kZeros + (Q::kSameZero ? 0 : kGroups * kTileSide);
    static constexpr i64 kCarried = kGroups * kOfGroup;
    static constexpr i64 kSums = kTileSide * kTileSide;
    static constexpr i64 kAtOnce = 4;  // tiles of sums

    static constexpr i64 scratch_floats(i64 tokens) {
        return kCarried + (kGroups < Panel::kGroups ? num_panels(tokens) * kSums : 0);
    }

    QuantizedRows<Q> w;
    i64 there;  // rows of w
    float* strip;
    Tiles<kGroup> tiles;
    alignas(64) i32 dots[kAtOnce][kSums];
    alignas(64) i32 starts[kAtOnce][kTileSide];
    alignas(64) u8 copy[kAtOnce][kTileSide * kGroup];

    CLEAVE_INLINE void fill(i64 first, i64 groups) {
#pragma clang loop unroll(disable)
        for (i64 r = 0; r < kTileSide; ++r) {
            const i64 row = min(r, there - 1);
            for (i64 g = 0; g < groups; ++g) {
                const i64 block = min((first + g) * kGroup / Q::kBlockSize, Q::kBlocks - 1);
                strip[kScales + g * kTileSide + r] = w.scale(row, block);
                if constexpr (!Q::kSameZero) strip[kZeros + g * kTileSide + r] = w.zero(row, block);
                if constexpr (kPacked) {
                    BytesN<kHalf> codes;
                    __builtin_memcpy(
                        &codes, w.codes + row * Q::kRowBytes + (first + g) * Q::kGroupBytes, kHalf);
                    const BytesN<kHalf> low = codes & BytesN<kHalf>(15), high = codes >> 4;
                    u8* to = bytes_of(g) + r * kGroup;
                    __builtin_memcpy(to, &low, kHalf);
                    __builtin_memcpy(to + kHalf, &high, kHalf);
                }
            }
        }
    }
    CLEAVE_INLINE u8* bytes_of(i64 g) const {
        return reinterpret_cast<u8*>(strip + kBytes) + g * kTileSide * kGroup;
    }

    // Codes of a group of all rows, `g` of those that the strip has.
    template <i64 kTile>
    CLEAVE_INLINE void load_weights(i64 first, i64 g, i64 at) {
        if constexpr (kPacked) {
            tiles.template load<kTile>(bytes_of(g), kGroup);
        } else {
            const u8* from = w.codes + (first + g) * kGroup;
            if (there >= kTileSide) return tiles.template load<kTile>(from, Q::kRowBytes);
            for (i64 r = 0; r < kTileSide; ++r)
                __builtin_memcpy(copy[at] + r * kGroup, from + min(r, there - 1) * Q::kRowBytes,
                                 kGroup);
            tiles.template load<kTile>(copy[at], kGroup);
        }
    }
    // Products of the group, exact, into dots[kAt].
    template <i64 kAt>
    CLEAVE_INLINE void dot(i64 first, i64 g, const u8* x) {
        if constexpr (Q::kSameZero) {
            IntN<kTileSide> sums;
            __builtin_memcpy(&sums, x + Panel::kSums + (first + g) * Panel::kWords, sizeof(sums));
            const IntN<kTileSide> start = sums * -static_cast<i32>(Q::zero(nullptr, 0));
            __builtin_memcpy(starts[kAt], &start, sizeof(start));
            tiles.template load<kAt>(starts[kAt], 0);
        } else {
            tiles.template clear<kAt>();
        }
        load_weights<4 + kAt % 2>(first, g, kAt);
        tiles.template load<6 + kAt % 2>(x + (first + g) * Panel::kCodes, 64);
        tiles.template dot_int8<kAt, 4 + kAt % 2, 6 + kAt % 2>();
        tiles.template store<kAt>(dots[kAt], 64);
    }
    CLEAVE_INLINE void add(i64 first, i64 g, i64 at, const u8* x,
                           FloatN<kTileSide> (&acc)[kTileSide]) const {
        const i64 word = (first + g) * Panel::kWords;
        const auto scales = load<16>(reinterpret_cast<const float*>(x + Panel::kScales + word));
        FloatN<kTileSide> sums;
        if constexpr (!Q::kSameZero) {
            IntN<kTileSide> whole;
            __builtin_memcpy(&whole, x + Panel::kSums + word, sizeof(whole));
            sums = __builtin_convertvector(whole, FloatN<kTileSide>);
        }
#pragma clang loop unroll(full)
        for (i64 r = 0; r < kTileSide; ++r) {
            IntN<kTileSide> whole;
            __builtin_memcpy(&whole, dots[at] + r * kTileSide, sizeof(whole));
            FloatN<kTileSide> one = __builtin_convertvector(whole, FloatN<kTileSide>);
            if constexpr (!Q::kSameZero) one -= strip[kZeros + g * kTileSide + r] * sums;
            acc[r] += one * (strip[kScales + g * kTileSide + r] * scales);
        }
    }

    // Groups [first, first + groups) of 16 tokens; from zero, or from what `carried` holds.
    CLEAVE_INLINE void panel(i64 first, i64 groups, const u8* x, float* carried, i64 tokens,
                             float* c, i64 c_stride) {
        FloatN<kTileSide> acc[kTileSide];
        for (i64 r = 0; r < kTileSide; ++r)
            acc[r] = first == 0 ? FloatN<kTileSide>(0.0f) : load<16>(carried + r * kTileSide);
        i64 g = 0;
#pragma clang loop unroll(disable)
        for (; g + kAtOnce <= groups; g += kAtOnce) {
            dot<0>(first, g, x);
            dot<1>(first, g + 1, x);
            dot<2>(first, g + 2, x);
            dot<3>(first, g + 3, x);
#pragma clang loop unroll(disable)
            for (i64 i = 0; i < kAtOnce; ++i) add(first, g + i, i, x, acc);
        }
#pragma clang loop unroll(disable)
        for (; g < groups; ++g) {
            dot<0>(first, g, x);
            add(first, g, 0, x, acc);
        }
        if (first + groups == Panel::kGroups) return store_sums(acc, tokens, c, c_stride);
        for (i64 r = 0; r < kTileSide; ++r) store<16>(carried + r * kTileSide, acc[r]);
    }
};

template <i64 K, class Q>
CLEAVE_INLINE void multiply_by_tiles(QuantizedRows<Q> w, i64 rows, const u8* x, i64 count,
                                     float* scratch, float* c, i64 c_stride) {
    using Product = CodeTiles<K, Q>;
    Product product{.w = w, .there = rows, .strip = scratch};
    for (i64 r = 0; r < rows; r += kTileSide) {
        product.w = skip_rows<K>(w, r);
        product.there = rows - r;
        for (i64 first = 0; first < Product::Panel::kGroups; first += Product::kGroups) {
            const i64 groups = min(Product::kGroups, Product::Panel::kGroups - first);
            product.fill(first, groups);
            for (i64 t = 0; t < count; t += kTileSide)
                product.panel(first, groups, x + t / kTileSide * Product::Panel::kBytes,
                              scratch + Product::kCarried + t / kTileSide * Product::kSums,
                              count - t, c + t * c_stride + r, c_stride);
        }
    }
}

// ---- A block of tokens

// Scratch floats for products of `tokens` with these weights: the panels, then each product's own.
template <i64 K, Rounding kRounding, class... Weights>
constexpr i64 tile_floats(i64 tokens) {
    const i64 panels = num_panels(tokens) * PanelOf<K, kRounding>::Type::kBytes / 4;
    i64 most = K + kTileSide;  // of a row that is normalised
    if constexpr (kRounding == Rounding::kBf16)
        most = max(most, bf16_tile_floats<K>(tokens));
    else
        ((most = max(most, CodeTiles<K, Weights>::scratch_floats(tokens))), ...);
    return panels + most;
}

template <i64 K, Rounding kRounding, class Norm>
CLEAVE_INLINE RoundedBlock<kRounding> prepare_panels(const Rows& input, i64 first, i64 count,
                                                     const Norm& norm, float* scratch) {
    using Panel = typename PanelOf<K, kRounding>::Type;
    u8* panels = reinterpret_cast<u8*>(scratch);
    float* rest = scratch + num_panels(count) * Panel::kBytes / 4;
    for (i64 t0 = 0; t0 < count; t0 += kTileSide) {
        u8* panel = panels + t0 / kTileSide * Panel::kBytes;
        if (count - t0 < kTileSide) __builtin_memset(panel, 0, Panel::kBytes);
        for (i64 t = 0; t < min(kTileSide, count - t0); ++t) {
            const float* x = input.row(first + t0 + t);
            if constexpr (Norm::kPresent) {
                rms_norm_row<K>(x, norm, rest);
                x = rest;
            }
            Panel::put(x, t, panel);
        }
        Panel::finish(panel);
    }
    return {panels, count, reinterpret_cast<u32*>(rest), true};
}

}  // namespace cleave
