// SPDX-License-Identifier: Apache-2.0
// [RmsNorm] Linear gate, Linear up [bias], act(gate) * up. Rows 2j and 2j + 1 of a block's table
// are gate and up of one feature, so that both meet in one thread. Grid: kRows / 2 features x
// kTokens tokens. Config: products.cuh's, kOut, Weight, kGateBias + GateBias, kUpBias + UpBias,
// kActivation, kXStride, kXOffset, kSharedBytes, epilogue.cuh's.
#pragma once

#include "epilogue.cuh"
#include "products.cuh"

namespace cleave {

template <class C>
struct GateUpArgs {
    const typename C::In* x = nullptr;
    const typename C::NormWeight* norm = nullptr;
    const typename C::Weight* gate = nullptr;  // [kOut, kIn]
    const typename C::GateBias* gate_bias = nullptr;
    const typename C::Weight* up = nullptr;  // [kOut, kIn]
    const typename C::UpBias* up_bias = nullptr;
    typename C::Out* out = nullptr;  // [num_tokens, kOut]
    i64 num_tokens = 0;
    const typename C::X* other[C::kOthers + 1] = {};

    // Row j of the block's table; behind the last features those once more.
    DEVICE typename Weights<typename C::Weight>::Row row(int j) const {
        const i64 feature = i64(block_place<C>().column) * (C::kRows / 2) + j / 2;
        return Weights<typename C::Weight>::row(choose(j % 2 != 0, up, gate),
                                                min<i64>(feature, C::kOut - 1), C::kOut, C::kIn);
    }
};

// Before the launches before it have ended: weights alone.
template <class C>
DEVICE void gate_up_ahead(const GateUpArgs<C>& a) {
    DYNAMIC_SHARED(float, shared);
    Products<C, typename C::Weight>(shared).ahead([&](int j) { return a.row(j); });
}

template <class C>
DEVICE void gate_up(const GateUpArgs<C>& a) {
    using P = Products<C, typename C::Weight>;
    static_assert(P::kSharedFloats * 4 <= C::kSharedBytes, "the tile claims what the kernel uses");
    constexpr int kFeatures = int(C::kRows) / 2;
    DYNAMIC_SHARED(float, shared);
    const BlockPlace place = block_place<C>();
    i64 row0 = i64(place.column) * kFeatures, t0 = i64(place.tile) * C::kTokens;
    int tokens = int(min<i64>(C::kTokens, a.num_tokens - t0));
    Rows<typename C::In> in{a.x + C::kXOffset, C::kXStride, nullptr, a.num_tokens};
    P products(shared);
    products.run(in, t0, tokens, [&](int j) { return a.row(j); }, a.norm);
    // A epilogue reads its operands by single features.
    constexpr i64 kWidth = C::kEpilogue ? 1 : gcd(kFeatures, C::kOut);
    constexpr int kRun = Finish<C, kWidth>::kRun;
    for (int i = thread_x() * kRun; i < tokens * kFeatures; i += int(C::kThreads) * kRun) {
        int t = i / kFeatures, j = i % kFeatures;
        i64 row = row0 + j;
        if (row >= C::kOut) continue;
        float scale = products.scale(t);
        Floats<kRun> v;
#pragma unroll
        for (int k = 0; k < kRun; ++k) {
            float gate =
                products.at(t, 2 * (j + k)) * scale + bias_at<C::kGateBias>(a.gate_bias, row + k);
            float up =
                products.at(t, 2 * (j + k) + 1) * scale + bias_at<C::kUpBias>(a.up_bias, row + k);
            v[k] = activate<C::kActivation>(gate) * up;
        }
        write_run<kRun>(a.out + (t0 + t) * C::kOut + row,
                        with_epilogue<C>(v, a.other, t0 + t, row));
    }
}

}  // namespace cleave
