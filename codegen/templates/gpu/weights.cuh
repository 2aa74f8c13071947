// SPDX-License-Identifier: Apache-2.0
// Matrices as rows, plain or quantised (quantized_rows.cuh), whichever a product is specialised
// for.
#pragma once

#include "eight_bit.cuh"
#include "quantized_rows.cuh"

namespace cleave {

template <class W>
struct Weights {
    using Staged = W;  // in shared memory
    static constexpr bool kPlain = true;
    using Row = const W*;

    static DEVICE constexpr int width(i64 in) { return load_width<W>(in); }
    // Row `r` of [rows, in].
    static DEVICE Row row(const W* base, i64 r, i64 /*rows*/, i64 in) { return base + r * in; }
    // What a product streams of a row.
    static DEVICE constexpr i64 row_bytes(i64 in) { return in * i64(sizeof(W)); }
    template <int N>
    static DEVICE Floats<N> load(Row row, i64 k) {
        return load_floats<N>(row + k);
    }
};

// 8-bit floats: rows as they are, 16 bits in shared memory, which hold each exactly.
template <>
struct Weights<f8e4m3> {
    using Staged = f16;
    static constexpr bool kPlain = false;
    using Row = const f8e4m3*;

    static DEVICE constexpr int width(i64 in) { return load_width<f8e4m3>(in); }
    static DEVICE Row row(const f8e4m3* base, i64 r, i64 /*rows*/, i64 in) { return base + r * in; }
    static DEVICE constexpr i64 row_bytes(i64 in) { return in; }
    template <int N>
    static DEVICE Floats<N> load(Row row, i64 k) {
        Vector<u8, N> bytes = load_vector<N>(reinterpret_cast<const u8*>(row + k));
        Floats<N> out;
#pragma unroll
        for (int i = 0; i < N; ++i) out.v[i] = f8e4m3_to_float(bytes.v[i]);
        return out;
    }
};

}  // namespace cleave
