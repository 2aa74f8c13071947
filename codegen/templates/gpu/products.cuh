// SPDX-License-Identifier: Apache-2.0
// Which main loop a matrix product takes: few tokens stream the weights, many share tiles of them.
// Both give a table c [tokens, rows of the block] in shared memory, which the kernel's own epilogue
// finishes.
#pragma once

#include "gemm.cuh"
#include "gemv.cuh"

namespace cleave {

// A kernel has the one that it takes.
template <class C, class W>
struct Gemv;
template <class C, class W>
struct Gemm;

template <class C, class W, bool kMany = C::kMany>
struct ProductsOf {
    using type = Gemv<C, W>;
};
template <class C, class W>
struct ProductsOf<C, W, true> {
    using type = Gemm<C, W>;
};
template <class C, class W>
using Products = typename ProductsOf<C, W>::type;

// Which rows and tokens a block computes: column `column` of kRows, tile `tile` of kTokens. Of many
// tokens, blocks that run at the same time are those of kTilesTogether tiles, which go through the
// columns side by side: they share their weights, and the tiles their activations, in the
// second-level cache.
struct BlockPlace {
    int column, tile;
};
template <class C>
DEVICE BlockPlace block_place() {
    if constexpr (!C::kMany) {
        return {block_x(), block_y()};
    } else {
        const int together = int(C::kTilesTogether), columns = blocks_x();
        const int first = block_y() / together * together;
        const int tiles = min(together, blocks_y() - first);
        const int place = (block_y() - first) * columns + block_x();
        return {place / tiles, first + place % tiles};
    }
}

// How a block's threads finish its table: runs of neighbouring features of a token, and so many
// runs of a thread at once. What they read of global memory is under way together: a load comes
// after a store that may overlap it, so that runs one after the other would each wait for memory.
// Where few tokens are, a thread has one number or two. `kWidth`: numbers of a row that a load or
// store may begin at, and that a run is to divide.
template <class C, i64 kWidth>
struct Finish {
    static constexpr int kRun = C::kMany ? load_width<float>(kWidth) : 1;
    static constexpr int kAtOnce = C::kMany ? turns(4) : 1;
};

// Value of an optional bias.
template <bool kPresent, class T>
DEVICE float bias_at(const T* bias, i64 i) {
    if constexpr (kPresent) return to_float(bias[i]);
    return 0.0f;
}

}  // namespace cleave
