// SPDX-License-Identifier: Apache-2.0
// [RmsNorm] Linear [bias] [Scale] [residual Add] [epilogue]: output and down projections, lm_head,
// any other Linear. Grid: kRows output features x kTokens tokens. Config:
// products.cuh's, kOut, Weight, kBias + Bias, kScaled + kScale, kSoftcap, kResidual +
// kResidualStride + kResidualOffset, kXStride, kXOffset, Out, kSharedBytes, epilogue.cuh's.
#pragma once

#include "epilogue.cuh"
#include "products.cuh"

namespace cleave {

template <class C>
struct LinearArgs {
    const typename C::In* x = nullptr;             // [.., kXStride]
    const typename C::NormWeight* norm = nullptr;  // [kIn]
    const typename C::Weight* weight = nullptr;    // [kOut, kIn]
    const typename C::Bias* bias = nullptr;        // [kOut]
    const typename C::X* residual = nullptr;       // [.., kResidualStride]
    const i32* rows = nullptr;                     // of x; null: all
    typename C::Out* out = nullptr;                // [num_tokens, kOut]
    i64 num_tokens = 0;
    const typename C::X* other[C::kOthers + 1] = {};

    // Row j of the block's table; behind the last row that one once more.
    DEVICE typename Weights<typename C::Weight>::Row row(int j) const {
        const i64 feature = min<i64>(i64(block_place<C>().column) * C::kRows + j, C::kOut - 1);
        return Weights<typename C::Weight>::row(weight, feature, C::kOut, C::kIn);
    }
};

// Before the launches before it have ended: weights alone.
template <class C>
DEVICE void linear_ahead(const LinearArgs<C>& a) {
    DYNAMIC_SHARED(float, shared);
    Products<C, typename C::Weight>(shared).ahead([&](int j) { return a.row(j); });
}

template <class C>
DEVICE void linear(const LinearArgs<C>& a) {
    using P = Products<C, typename C::Weight>;
    static_assert(P::kSharedFloats * 4 <= C::kSharedBytes, "the tile claims what the kernel uses");
    DYNAMIC_SHARED(float, shared);
    const BlockPlace place = block_place<C>();
    i64 row0 = i64(place.column) * C::kRows, t0 = i64(place.tile) * C::kTokens;
    int tokens = int(min<i64>(C::kTokens, a.num_tokens - t0));
    Rows<typename C::In> in{a.x + C::kXOffset, C::kXStride, a.rows, a.num_tokens};
    P products(shared);
    products.run(in, t0, tokens, [&](int j) { return a.row(j); }, a.norm);
    // A epilogue reads its operands by single features.
    constexpr i64 kResidual = C::kResidual ? gcd(C::kResidualStride, C::kResidualOffset) : 0;
    constexpr i64 kWidth = C::kEpilogue ? 1 : gcd(gcd(C::kRows, C::kOut), kResidual);
    constexpr int kRun = Finish<C, kWidth>::kRun, kAtOnce = Finish<C, kWidth>::kAtOnce;
    constexpr int kStep = int(C::kThreads) * kRun;
    const int end = tokens * int(C::kRows);
    const auto is_there = [&](int i) { return i < end && row0 + i % int(C::kRows) < C::kOut; };
    for (int first = thread_x() * kRun; first < end; first += kStep * kAtOnce) {
        Floats<kRun> residual[kAtOnce];
        if constexpr (C::kResidual) {
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
                const int i = first + n * kStep, t = i / int(C::kRows), j = i % int(C::kRows);
                if (is_there(i))
                    residual[n] = load_floats<kRun>(a.residual + (t0 + t) * C::kResidualStride +
                                                    C::kResidualOffset + row0 + j);
            }
        }
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
            const int i = first + n * kStep, t = i / int(C::kRows), j = i % int(C::kRows);
            if (!is_there(i)) continue;
            const i64 row = row0 + j;
            const float scale = products.scale(t);
            Floats<kRun> v = products.template run_at<kRun>(t, j);
#pragma unroll
            for (int k = 0; k < kRun; ++k) {
                v[k] = v[k] * scale + bias_at<C::kBias>(a.bias, row + k);
                if constexpr (C::kScaled) v[k] *= C::kScale;
                if constexpr (C::kSoftcap > 0.0f)
                    v[k] = C::kSoftcap * tanh(v[k] * (1.0f / C::kSoftcap));
                if constexpr (C::kResidual) v[k] += residual[n][k];
            }
            write_run<kRun>(a.out + (t0 + t) * C::kOut + row,
                            with_epilogue<C>(v, a.other, t0 + t, row));
        }
    }
}

}  // namespace cleave
