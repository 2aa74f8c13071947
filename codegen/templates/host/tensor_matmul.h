// SPDX-License-Identifier: Apache-2.0
// Matrix products of whole tensors, a row of the result an item, kBlock of its columns at a time.
// Config: A, B and Held (element types), Sum (float, or i32 for integers, whose zero points are
// taken off).
#pragma once

#include "tensor_chain.h"
#include "tensor_sink.h"

namespace cleave {

template <class Config>
struct TensorMatmulArgs {
    const typename Config::A* A;             // [batch, m, k]
    const typename Config::B* B;             // [batch, k, n]
    const typename Config::A* a_zero_point;  // one, or null
    const typename Config::B* b_zero_point;
    typename Config::Out* out;  // [batch, m, n]
    Chain<Config> chain;
    i64 batch[4], a_strides[4], b_strides[4], m, k, n;  // strides count matrices
};

template <class Config>
CLEAVE_INLINE void tensor_matmul(const TensorMatmulArgs<Config>& args, i64 begin, i64 end, void*) {
    using Sum = typename Config::Sum;
    constexpr i64 kBlock = 64;
    Sum a_zero = args.a_zero_point ? static_cast<Sum>(read(args.a_zero_point, 0)) : Sum(0);
    Sum b_zero = args.b_zero_point ? static_cast<Sum>(read(args.b_zero_point, 0)) : Sum(0);
    Sink<Config, typename Config::Held> sink(args.out, args.chain, begin * args.n);
    for (i64 item = begin; item < end; ++item) {
        i64 row = item % args.m, index = item / args.m, a_at = 0, b_at = 0;
        for (i64 d = 3; d >= 0; --d) {
            a_at += index % args.batch[d] * args.a_strides[d];
            b_at += index % args.batch[d] * args.b_strides[d];
            index /= args.batch[d];
        }
        const auto* a = args.A + (a_at * args.m + row) * args.k;
        const auto* b = args.B + b_at * args.k * args.n;
        for (i64 column = 0; column < args.n; column += kBlock) {
            i64 width = min(kBlock, args.n - column);
            Sum sums[kBlock] = {};
            for (i64 i = 0; i < args.k; ++i) {
                Sum x = static_cast<Sum>(read(a, i)) - a_zero;
                for (i64 j = 0; j < width; ++j)
                    sums[j] += x * (static_cast<Sum>(read(b, i * args.n + column + j)) - b_zero);
            }
            auto* y = sink.next(width);
            for (i64 j = 0; j < width; ++j) write(y + j, sums[j]);
        }
    }
}

}  // namespace cleave
