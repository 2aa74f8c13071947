// SPDX-License-Identifier: Apache-2.0
// A product on rounded activations (rounded.h): tokens made ready, few as they meet vectors along
// the depth (rounded_dots.h), more for a matrix unit (tile_product.h) or for strips of weights.
#pragma once

#include "norm.h"
#include "prelude.h"
#include "rounded.h"
#include "rounded_dots.h"
#include "tile_product.h"
#include "token_block.h"

namespace cleave {

// ---- Making a block of tokens ready

// Rows of f32 are normalised where they are rounded.
template <Rounding kRounding>
inline constexpr bool kInPlace = kRounding == Rounding::kBf16 && kUnitElements == 1;

// Bytes of a token, and of the strip and the row of f32 that are needed beside the tokens.
template <i64 K, Rounding kRounding>
constexpr i64 rounded_row_bytes() {
    return kRounding == Rounding::kInt8 ? Int8Row<K>::kBytes : Bf16Row<K>::kBytes;
}
template <i64 K, Rounding kRounding>
constexpr i64 strip_floats() {
    constexpr i64 kInt8Words = 10 * min(kLanes, Int8Row<K>::kGroups) * kStripRows;
    constexpr i64 kRow = kInPlace<kRounding> ? 0 : K + kLanes;
    return max(kRounding == Rounding::kInt8 ? kInt8Words : Bf16Strip<K>::kWords, kRow);
}
// Of one of few tokens.
template <i64 K, Rounding kRounding>
constexpr i64 few_row_floats() {
    if (kRounding == Rounding::kInt8) return kInt8Steps<K> * static_cast<i64>(sizeof(Int8Step)) / 4;
    return kUnitElements == 2 ? Bf16Row<K>::kBytes / 4 : K;
}
// Whether more tokens go by tiles; sums of bf16 would not have the order that strips have.
template <Rounding kRounding, bool kReproducible>
inline constexpr bool kTakesTiles =
    kHasTiles<kRounding> && (kRounding == Rounding::kInt8 || !kReproducible);

// Scratch floats for a block of `tokens` that meets these weights, the strip among them.
template <i64 K, Rounding kRounding, bool kReproducible, class... Weights>
constexpr i64 rounded_floats(i64 tokens) {
    i64 most =
        round_up(tokens * rounded_row_bytes<K, kRounding>(), 64) / 4 + strip_floats<K, kRounding>();
    if constexpr (kTakesTiles<kRounding, kReproducible>)
        most = tile_floats<K, kRounding, Weights...>(tokens);
    return max(kFewTokens<kRounding> * few_row_floats<K, kRounding>() + round_up(K, 16), most);
}

template <i64 K, Rounding kRounding, class Norm>
CLEAVE_INLINE RoundedBlock<kRounding> prepare_few(const Rows& input, i64 first, i64 count,
                                                  const Norm& norm, float* scratch) {
    float* row = scratch;  // of f32; tokens follow
    float* tokens = scratch + round_up(K, 16);
    for (i64 t = 0; t < count; ++t) {
        const float* x = input.row(first + t);
        if constexpr (Norm::kPresent) {
            rms_norm_row<K>(x, norm, row);
            x = row;
        }
        float* to = tokens + t * few_row_floats<K, kRounding>();
        if constexpr (kRounding == Rounding::kInt8)
            round_to_steps<K>(x, reinterpret_cast<Int8Step*>(to));
        else if constexpr (kUnitElements == 2)
            round_to_bf16<K>(x, reinterpret_cast<u8*>(to));
        else
            round_values<K>(x, to);
    }
    return {reinterpret_cast<const u8*>(tokens), count, nullptr};
}

template <i64 K, Rounding kRounding, bool kReproducible, class Norm>
CLEAVE_INLINE RoundedBlock<kRounding> prepare_rounded(const Rows& input, i64 first, i64 count,
                                                      const Norm& norm, float* scratch) {
    if (!kReproducible && count <= kFewTokens<kRounding>)
        return prepare_few<K, kRounding>(input, first, count, norm, scratch);
    if constexpr (kTakesTiles<kRounding, kReproducible>)
        return prepare_panels<K, kRounding>(input, first, count, norm, scratch);
    constexpr i64 kRowBytes = rounded_row_bytes<K, kRounding>();
    u8* rows = reinterpret_cast<u8*>(scratch);
    float* rest = scratch + round_up(count * kRowBytes, 64) / 4;
    for (i64 t = 0; t < count; ++t) {
        const float* x = input.row(first + t);
        if constexpr (Norm::kPresent) {
            float* row =
                kInPlace<kRounding> ? reinterpret_cast<float*>(rows + t * kRowBytes) : rest;
            rms_norm_row<K>(x, norm, row);
            x = row;
        }
        round_row<K, kRounding>(x, rows + t * kRowBytes);
    }
    return {rows, count, reinterpret_cast<u32*>(rest)};
}

// ---- The product

template <class Strip, i64 V, i64 T>
void strip_tokens(const u32* strip, i64 step, const u8* x, float* c, i64 c_stride) {
    Vec acc[V][T];
#pragma clang loop unroll(full)
    for (i64 i = 0; i < V * T; ++i)
        acc[i / T][i % T] = step == 0 ? Vec(0.0f) : load(c + i % T * c_stride + i / T * kLanes);
    Strip::multiply(strip, step, x, acc);
#pragma clang loop unroll(full)
    for (i64 i = 0; i < V * T; ++i) store(c + i % T * c_stride + i / T * kLanes, acc[i / T][i % T]);
}

template <class Strip, i64 V, i64 T>
CLEAVE_INLINE void strip_rest(const u32* strip, i64 step, const u8* x, i64 count, float* c,
                              i64 c_stride) {
    i64 t = 0;
    for (; t + T <= count; t += T)
        strip_tokens<Strip, V, T>(strip, step, x + t * Strip::Row::kBytes, c + t * c_stride,
                                  c_stride);
    if constexpr (T > 1)
        strip_rest<Strip, V,
                   (T > 8   ? 8
                    : T > 4 ? 4
                            : T / 2)>(strip, step, x + t * Strip::Row::kBytes, count - t,
                                      c + t * c_stride, c_stride);
}

// c [block.count][c_stride] from `rows` rows of w. Vectors past the last row of c are overwritten.
template <i64 K, Rounding kRounding, class Weights>
__attribute__((noinline)) void multiply_rounded(Weights w, i64 rows,
                                                const RoundedBlock<kRounding>& block, float* c,
                                                i64 c_stride) {
    if (!block.strip) {
        constexpr i64 kStride = few_row_floats<K, kRounding>();
        if constexpr (kRounding == Rounding::kInt8) {
            const auto* steps = reinterpret_cast<const Int8Step*>(block.data);
            dot_block<K>(w, rows, Int8Tokens{steps, block.count, kInt8Steps<K>, 1.0f}, c, c_stride);
        } else if constexpr (kUnitElements == 2) {
            const auto* pairs = reinterpret_cast<const u32*>(block.data);
            dot_block<K>(w, rows, Bf16Tokens{pairs, block.count, kStride, 1.0f}, c, c_stride);
        } else {
            const auto* values = reinterpret_cast<const float*>(block.data);
            dot_block<K>(w, rows, Block{values, block.count, kStride, false, 1.0f}, c, c_stride);
        }
        return;
    }
    if constexpr (kHasTiles<kRounding>)
        if (block.for_tiles)
            return multiply_by_tiles<K>(w, rows, block.data, block.count,
                                        reinterpret_cast<float*>(block.strip), c, c_stride);
    using Strip = decltype(strip_of<K>(w));
    for (i64 r = 0; r < rows; r += kStripRows) {
        const bool whole = r + kLanes < rows;
        for (i64 step = 0; step < Strip::kSteps; ++step) {
            for (i64 lane = 0; lane < (whole ? kStripRows : kLanes); lane += kLanes)
                Strip::fill(skip_rows<K>(w, r + lane), rows - r - lane - 1, step, lane,
                            block.strip);
            if (whole)
                strip_rest<Strip, kStripVectors, Strip::kTokens>(block.strip, step, block.data,
                                                                 block.count, c + r, c_stride);
            else
                strip_rest<Strip, 1, Strip::kTokens>(block.strip, step, block.data, block.count,
                                                     c + r, c_stride);
        }
    }
}

}  // namespace cleave
