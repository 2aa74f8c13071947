// SPDX-License-Identifier: Apache-2.0
// A small dense tensor of the evaluator: real numbers as double, integers and booleans as int64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cleave::importer::from_onnx {

using Dims = std::vector<int64_t>;

struct Tensor {
    Dims dims;
    bool real = false;
    std::vector<double> reals;      // when `real`
    std::vector<int64_t> integers;  // otherwise

    int64_t count() const { return static_cast<int64_t>(real ? reals.size() : integers.size()); }
    double at(int64_t i) const { return real ? reals[i] : static_cast<double>(integers[i]); }
    static Tensor of(Dims dims, bool real);  // zeros
    // Element `i` becomes element `source` of a tensor of the same kind.
    void copy(int64_t i, const Tensor& from, int64_t source) {
        if (real)
            reals[i] = from.reals[source];
        else
            integers[i] = from.integers[source];
    }
};

// A number as an integer; what no integer can hold is 0, as it is undefined.
int64_t whole(double v);
inline int64_t whole(int64_t v) { return v; }

int64_t product(const Dims& dims);  // saturates at 2^56

// Row-major strides, 0 where a dimension of `dims` is broadcast to `to` (aligned at the back).
Dims broadcast_strides(const Dims& dims, const Dims& to);

// numpy's rule; false when the shapes do not fit.
bool broadcast(const Dims& a, const Dims& b, Dims& out);

// Calls f(flat index) of `strides` for each index of `dims`, in row-major order.
template <class F>
void for_each_index(const Dims& dims, const std::vector<Dims>& strides, F f) {
    const int64_t n = product(dims), row = dims.empty() ? 1 : dims.back();
    Dims index(dims.size(), 0), at(strides.size(), 0), step(strides.size(), 0);
    for (size_t s = 0; s < strides.size() && !dims.empty(); ++s) step[s] = strides[s].back();
    for (int64_t first = 0; first < n; first += row) {
        for (int64_t i = first; i < first + row; ++i) {
            f(i, at);
            for (size_t s = 0; s < at.size(); ++s) at[s] += step[s];
        }
        for (size_t s = 0; s < at.size(); ++s) at[s] -= step[s] * row;
        for (size_t axis = dims.size(); axis-- > 1;) {
            for (size_t s = 0; s < at.size(); ++s) at[s] += strides[s][axis - 1];
            if (++index[axis - 1] < dims[axis - 1]) break;
            for (size_t s = 0; s < at.size(); ++s) at[s] -= strides[s][axis - 1] * dims[axis - 1];
            index[axis - 1] = 0;
        }
    }
}

}  // namespace cleave::importer::from_onnx
