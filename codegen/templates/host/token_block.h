// SPDX-License-Identifier: Apache-2.0
// A block of tokens made ready for a product (matmul.h): few as rows, many as panels of 1 or 2
// vectors of tokens, [depth][lanes], with the norm before it applied, or as integers where the
// graph quantises its activations.
#pragma once

#include "lanes.h"
#include "norm.h"
#include "prelude.h"
#include "quantized.h"

namespace cleave {

inline constexpr i64 kPanel = 2 * kLanes;  // tokens of a full panel

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

template <i64 K, i64 kDotTokens, bool kReproducible, class Norm, class DynamicSteps>
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
        if (rest > kMostRest<kReproducible>) rest = 0;
        const i64 packed = count - rest;
        pack<K>(input, first, packed, norm, scratch);
        const Block few =
            prepare_rows<K, false>(input, first + packed, rest, norm, scratch + packed * K);
        return {scratch, count, few.stride, true, 1.0f, few.data, rest};
    }
}

}  // namespace cleave
