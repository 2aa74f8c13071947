// SPDX-License-Identifier: Apache-2.0
#include "importer/onnx/probe/tensor.h"

#include <algorithm>
#include <cmath>

namespace cleave::importer::from_onnx {

Tensor Tensor::of(Dims dims, bool real) {
    Tensor t;
    t.real = real;
    if (real)
        t.reals.resize(product(dims));
    else
        t.integers.resize(product(dims));
    t.dims = std::move(dims);
    return t;
}

int64_t whole(double v) { return std::fabs(v) < 9e18 ? static_cast<int64_t>(v) : 0; }

int64_t product(const Dims& dims) {
    int64_t n = 1;
    constexpr int64_t kMany = int64_t{1} << 56;  // saturates: hostile shapes overflow
    for (int64_t d : dims) n = d != 0 && n > kMany / d ? kMany : n * d;
    return n;
}

Dims broadcast_strides(const Dims& dims, const Dims& to) {
    Dims strides(to.size(), 0);
    int64_t stride = 1;
    for (size_t i = 0; i < dims.size(); ++i) {
        const size_t from_back = dims.size() - 1 - i;
        if (dims[from_back] != 1) strides[to.size() - 1 - i] = stride;
        stride *= dims[from_back];
    }
    return strides;
}

bool broadcast(const Dims& a, const Dims& b, Dims& out) {
    out.assign(std::max(a.size(), b.size()), 1);
    for (size_t i = 0; i < out.size(); ++i) {
        const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
        const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
        if (x != y && x != 1 && y != 1) return false;
        out[out.size() - 1 - i] = x == 1 ? y : x;
    }
    return true;
}

}  // namespace cleave::importer::from_onnx
