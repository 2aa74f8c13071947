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

// Tokens [first, first + count) made ready for products with this ProductScratch.
template <i64 K, class Scratch, class Norm, class DynamicSteps>
CLEAVE_INLINE auto prepare_block(const Rows& input, i64 first, i64 count, const Norm& norm,
                                 const DynamicSteps& steps, float* scratch) {
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

template <class Config>
CLEAVE_INLINE void linear(const LinearArgs<Config>& a, i64 begin, i64 end, void* scratch) {
    static_assert(linear_scratch_floats<Config>() * 4 <= Config::kScratchBytes);
    constexpr i64 K = Config::kIn, kStride = c_stride(Config::kItemRows);
    using Scratch = ProductScratch<Config, typename Config::Weight>;
    float* x = static_cast<float*>(scratch);
    float* c = x + Scratch::tokens();
    float* converted = c + Config::kTokens * kStride;
    Rows input{a.x + Config::kXOffset, Config::kXStride, a.rows};
    auto weight = rows_of<Config::kOut>(a.weight);
    auto norm = norm_of<Config>(a.norm);
    auto steps = steps_for<K, typename Config::Weight>(input, a.all_tokens, norm, x);
    for (i64 t0 = 0; t0 < a.num_tokens; t0 += Config::kTokens) {
        i64 tokens = min(Config::kTokens, a.num_tokens - t0);
        const auto block = prepare_block<K, Scratch>(input, t0, tokens, norm, steps, x);
        for (i64 item = begin; item < end; ++item) {
            i64 r0 = item * Config::kItemRows;
            i64 rows = min(Config::kItemRows, Config::kOut - r0);
            multiply_block<K, Config::kReproducible>(skip_rows<K>(weight, r0), rows, block, c,
                                                     kStride, converted);
#pragma clang loop unroll(disable)
            for (i64 t = 0; t < tokens; ++t)
                linear_finish<Config>(a, t0 + t, r0, rows, c + t * kStride);
        }
    }
}

}  // namespace cleave
