// SPDX-License-Identifier: Apache-2.0
// [SelectTokens] [RmsNorm] Linear [bias] [Scale] [Add] [epilogue]. Item: `kItemRows` output
// features of every token. A product of integers quantises x by all of its rows (`all_tokens`),
// also where few are selected. Config: kIn, kOut, kItemRows, kTokens (of a block), kReproducible,
// kFast (x is rounded: rounded.h), Weight, kBias + Bias, kScale + scale, kSoftcap, kResidual, kNorm
// + NormWeight + kEpsilon + kNormOffset, kSelect, strides and column offsets of input and residual,
// epilogue.h's.
#pragma once

#include "epilogue.h"
#include "math.h"
#include "matmul.h"
#include "rounded_product.h"

namespace cleave {

template <class Config>
struct LinearArgs {
    const float* x;                           // [tokens, kXStride], columns from kXOffset
    const typename Config::Weight* weight;    // [kOut, kIn]
    const typename Config::Bias* bias;        // [kOut], or null
    const typename Config::NormWeight* norm;  // [kIn], or null
    const float* residual;                    // [tokens, kResidualStride], or null
    float* out;                               // [tokens, kOut]
    const i32* rows;                          // token of each output row, or null
    i64 num_tokens;                           // of the output
    i64 all_tokens;                           // of x; for products of integers only
    const float* other[Config::kOthers + 1];
};

// Scratch of a product of blocks of kTokens with rows of these weights, besides c: in order, the
// tokens, and, where they are not rounded, the f32 copy of a tile.
template <class Config, class... Weights>
struct ProductScratch {
    static constexpr Rounding kRounding = kSharedRounding<Config::kFast, Weights...>;
    static constexpr bool kReproducible = Config::kReproducible;
    static constexpr i64 kDotTokens = dot_tokens<kReproducible, Weights...>();
    static constexpr i64 tokens() {
        if constexpr (kRounding == Rounding::kNone)
            return block_floats(Config::kIn, Config::kTokens);
        else
            return rounded_floats<Config::kIn, kRounding, kReproducible, Weights...>(
                Config::kTokens);
    }
    static constexpr i64 converted() {
        i64 most = 0;
        if constexpr (kRounding == Rounding::kNone)
            ((most = max(most, convert_floats<Weights>())), ...);
        return most;
    }
};

// Floats of scratch, in order: the block of tokens, c, the f32 copy of a tile.
template <class Config>
constexpr i64 linear_scratch_floats() {
    using Scratch = ProductScratch<Config, typename Config::Weight>;
    return Scratch::tokens() + Config::kTokens * c_stride(Config::kItemRows) + Scratch::converted();
}

template <class Config>
CLEAVE_INLINE void linear_finish(const LinearArgs<Config>& a, i64 t, i64 r0, i64 rows,
                                 const float* c) {
    float* out = a.out + t * Config::kOut + r0;
    const float* residual = a.residual + t * Config::kResidualStride + Config::kResidualOffset + r0;
#pragma clang loop unroll(disable) interleave(disable)
    for (i64 r = 0; r < rows; ++r) {
        float y = c[r];
        if constexpr (Config::kBias) y += load_one(a.bias + r0 + r);
        if constexpr (Config::kScaled) y *= Config::kScale;
        if constexpr (Config::kSoftcap > 0.0f) y = softcapped<Config>(y);
        if constexpr (Config::kResidual) y += residual[r];
        out[r] = y;
    }
    apply_epilogue<Config>(out, a.other, t, r0, rows);
}

template <class Config>
CLEAVE_INLINE auto norm_of(const typename Config::NormWeight* weight) {
    if constexpr (Config::kNorm)
        return RmsNorm<typename Config::NormWeight>{weight, Config::kEpsilon, Config::kNormOffset};
    else
        return NoNorm{};
}

// How the activations of a product with W become integers: by all `count` rows of x; not at all for
// other weights.
template <i64 K, class W, class Norm>
CLEAVE_INLINE auto steps_for(const Rows& x, i64 count, const Norm& norm, float* row) {
    if constexpr (kIsDynamic<W>)
        return steps_of<K>(Rows{x.x, x.stride, nullptr}, count, norm, row);
    else
        return NoSteps{};
}

// Tokens [first, first + count) of `all` made ready for products with this ProductScratch. W: one
// of its weights; all are products of integers, or none.
template <i64 K, class Scratch, class W, class Norm>
CLEAVE_INLINE auto prepare_block(const Rows& input, i64 first, i64 count, i64 all, const Norm& norm,
                                 float* scratch) {
    const auto steps = steps_for<K, W>(input, all, norm, scratch);
    if constexpr (Scratch::kRounding == Rounding::kNone)
        return prepare<K, Scratch::kDotTokens, Scratch::kReproducible>(input, first, count, norm,
                                                                       steps, scratch);
    else
        return prepare_rounded<K, Scratch::kRounding, Scratch::kReproducible>(input, first, count,
                                                                              norm, scratch);
}
template <i64 K, bool kReproducible, class Weights>
CLEAVE_INLINE void multiply_block(Weights w, i64 rows, const Block& block, float* c, i64 c_stride,
                                  float* converted) {
    multiply<K, kReproducible>(w, rows, block, c, c_stride, converted);
}
template <i64 K, bool, Rounding kRounding, class Weights>
CLEAVE_INLINE void multiply_block(Weights w, i64 rows, const RoundedBlock<kRounding>& block,
                                  float* c, i64 c_stride, float*) {
    multiply_rounded<K, kRounding>(w, rows, block, c, c_stride);
}

// What a thread's scratch begins with: the block of tokens that it made ready last, which the other
// calls of a launch find there. `of` is 1 + its first token; zero when a launch begins.
template <class Block>
struct Prepared {
    i64 of;
    Block block;
};
inline constexpr i64 kPreparedBytes = 64;

// Items [begin, end) of kItems, of all tokens: of each block of tokens its part, one block after
// the other, so that a call makes few ready. make(first, count): a block of tokens;
// use(block, first, items_begin, items_end).
template <i64 kTokens, i64 kItems, class Make, class Use>
CLEAVE_INLINE void each_block(i64 num_tokens, i64 begin, i64 end, void* scratch, const Make& make,
                              const Use& use) {
    const i64 blocks = ceil_div(num_tokens, kTokens);
    if (blocks == 0) return;
    const i64 size = min(kTokens, round_up(ceil_div(num_tokens, blocks), 16));
    for (i64 at = begin * blocks; at < end * blocks;) {
        const i64 number = at / kItems, first = number * size;
        const i64 stop = min(end * blocks, (number + 1) * kItems);
        const i64 count = min(size, num_tokens - first);
        if (count > 0) {
            using Block = decltype(make(first, count));
            static_assert(sizeof(Prepared<Block>) <= kPreparedBytes);
            auto* prepared = static_cast<Prepared<Block>*>(scratch);
            if (prepared->of != first + 1) {
                prepared->block = make(first, count);
                prepared->of = first + 1;
            }
            const Block block = prepared->block;
            use(block, first, at - number * kItems, stop - number * kItems);
        }
        at = stop;
    }
}

template <class Config>
CLEAVE_INLINE void linear(const LinearArgs<Config>& a, i64 begin, i64 end, void* scratch) {
    static_assert(kPreparedBytes + linear_scratch_floats<Config>() * 4 <= Config::kScratchBytes);
    constexpr i64 K = Config::kIn, kStride = c_stride(Config::kItemRows);
    constexpr i64 kItems = ceil_div(Config::kOut, Config::kItemRows);
    using Scratch = ProductScratch<Config, typename Config::Weight>;
    float* x = static_cast<float*>(scratch) + kPreparedBytes / 4;
    float* c = x + Scratch::tokens();
    float* converted = c + Config::kTokens * kStride;
    Rows input{a.x + Config::kXOffset, Config::kXStride, a.rows};
    auto weight = rows_of<Config::kOut>(a.weight);
    auto norm = norm_of<Config>(a.norm);
    const auto make = [&](i64 first, i64 count) __attribute__((always_inline)) {
        return prepare_block<K, Scratch, typename Config::Weight>(input, first, count, a.all_tokens,
                                                                  norm, x);
    };
    each_block<Config::kTokens, kItems>(
        a.num_tokens, begin, end, scratch, make,
        [&](const auto& block, i64 t0, i64 from, i64 to) __attribute__((always_inline)) {
            for (i64 item = from; item < to; ++item) {
                i64 r0 = item * Config::kItemRows;
                i64 rows = min(Config::kItemRows, Config::kOut - r0);
                multiply_block<K, Config::kReproducible>(skip_rows<K>(weight, r0), rows, block, c,
                                                         kStride, converted);
#pragma clang loop unroll(disable)
                for (i64 t = 0; t < block.count; ++t)
                    linear_finish<Config>(a, t0 + t, r0, rows, c + t * kStride);
            }
        });
}

}  // namespace cleave
