// SPDX-License-Identifier: Apache-2.0
// [RmsNorm] Linear gate, Linear up, activation(gate) * up. Item: `kItemRows` columns of the
// intermediate vector of every token; gate and up meet in scratch and never reach memory. Config:
// kIn, kOut, kItemRows, kTokens, kReproducible, kFast, GateWeight, UpWeight, kGateBias with
// GateBias, kUpBias with UpBias, kNorm with NormWeight, kEpsilon and kNormOffset, kActivation,
// kXStride, kXOffset, epilogue.h's.
#pragma once

#include "epilogue.h"
#include "linear.h"
#include "math.h"

namespace cleave {

template <class Config>
struct GateUpArgs {
    const float* x;                              // [tokens, kXStride], columns from kXOffset
    const typename Config::NormWeight* norm;     // [kIn], or null
    const typename Config::GateWeight* gate;     // [kOut, kIn]
    const typename Config::GateBias* gate_bias;  // [kOut], or null
    const typename Config::UpWeight* up;         // [kOut, kIn]
    const typename Config::UpBias* up_bias;      // [kOut], or null
    float* out;                                  // [tokens, kOut]
    i64 num_tokens;
    const float* other[Config::kOthers + 1];
};

template <class Config>
constexpr i64 gate_up_scratch_floats() {
    using Scratch = ProductScratch<Config, typename Config::GateWeight, typename Config::UpWeight>;
    return Scratch::tokens() + 2 * Config::kTokens * c_stride(Config::kItemRows) +
           Scratch::converted();
}

template <class Config>
CLEAVE_INLINE void gate_up(const GateUpArgs<Config>& a, i64 begin, i64 end, void* scratch) {
    static_assert(kPreparedBytes + gate_up_scratch_floats<Config>() * 4 <= Config::kScratchBytes);
    constexpr i64 K = Config::kIn, kStride = c_stride(Config::kItemRows);
    using Scratch = ProductScratch<Config, typename Config::GateWeight, typename Config::UpWeight>;
    constexpr i64 kItems = ceil_div(Config::kOut, Config::kItemRows);
    float* x = static_cast<float*>(scratch) + kPreparedBytes / 4;
    float* gate = x + Scratch::tokens();
    float* up = gate + Config::kTokens * kStride;
    float* converted = up + Config::kTokens * kStride;
    Rows input{a.x + Config::kXOffset, Config::kXStride, nullptr};
    auto gate_weight = rows_of<Config::kOut>(a.gate);
    auto up_weight = rows_of<Config::kOut>(a.up);
    auto norm = norm_of<Config>(a.norm);
    // Both are products of integers, or neither: they share x.
    static_assert(kIsDynamic<typename Config::GateWeight> == kIsDynamic<typename Config::UpWeight>);
    const auto make = [&](i64 first, i64 count) __attribute__((always_inline)) {
        return prepare_block<K, Scratch, typename Config::GateWeight>(input, first, count,
                                                                      a.num_tokens, norm, x);
    };
    const auto use = [&](const auto& block, i64 t0, i64 from,
                         i64 to) __attribute__((always_inline)) {
        for (i64 item = from; item < to; ++item) {
            i64 r0 = item * Config::kItemRows;
            i64 rows = min(Config::kItemRows, Config::kOut - r0);
            multiply_block<K, Config::kReproducible>(skip_rows<K>(gate_weight, r0), rows, block,
                                                     gate, kStride, converted);
            multiply_block<K, Config::kReproducible>(skip_rows<K>(up_weight, r0), rows, block, up,
                                                     kStride, converted);
            for (i64 t = 0; t < block.count; ++t) {
                float* g = gate + t * kStride;
                float* u = up + t * kStride;
                if constexpr (Config::kGateBias)
                    for (i64 r = 0; r < rows; ++r) g[r] += load_one(a.gate_bias + r0 + r);
                if constexpr (Config::kUpBias)
                    for (i64 r = 0; r < rows; ++r) u[r] += load_one(a.up_bias + r0 + r);
                float* out = a.out + (t0 + t) * Config::kOut + r0;
                gated_activation_row<Config::kActivation>(g, u, out, rows);
                apply_epilogue<Config>(out, a.other, t0 + t, r0, rows);
            }
        }
    };
    each_block<Config::kTokens, kItems>(a.num_tokens, begin, end, scratch, make, use);
}

}  // namespace cleave
