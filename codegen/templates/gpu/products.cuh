// SPDX-License-Identifier: Apache-2.0
// Which main loop a matrix product takes: few tokens stream the weights, many share tiles of them.
// Both give a table c [tokens, rows of the block] in shared memory, which the kernel's own epilogue finishes.
#pragma once

#include "few_tokens.cuh"
#include "many_tokens.cuh"

namespace cleave {

// A kernel has the one that it takes.
template <class C, class W>
struct FewTokens;
template <class C, class W>
struct ManyTokens;

template <class C, class W, bool kMany = C::kMany>
struct ProductsOf {
    using type = FewTokens<C, W>;
};
template <class C, class W>
struct ProductsOf<C, W, true> {
    using type = ManyTokens<C, W>;
};
template <class C, class W>
using Products = typename ProductsOf<C, W>::type;

// Value of an optional bias.
template <bool kPresent, class T>
DEVICE float bias_at(const T* bias, i64 i) {
    if constexpr (kPresent) return to_float(bias[i]);
    return 0.0f;
}

}  // namespace cleave
