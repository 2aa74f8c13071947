// SPDX-License-Identifier: Apache-2.0
// What the rows of the kernel table are drawn with, and those of operators that stand alone.
#pragma once

#include <algorithm>
#include <random>

#include "tests/simt/kernel_case.h"

namespace cleave::test {

// Of the caches.
inline constexpr int64_t kCacheSlots = 3, kCacheContext = 150;

// Bounds by what is narrowed: a product of normalised operands loses about the type's last bit.
inline double narrowed_bound(DType dtype) {
    return dtype == DType::kF16 ? 1e-3 : dtype == DType::kBF16 ? 8e-3 : 2e-5;
}

struct Draw {
    KernelCase& c;
    std::mt19937 rng;
    GuardedBuffer operator()(const char* name, DType dtype, int64_t n, double scale = 1.0) {
        return GuardedBuffer::random(name, dtype, n, rng, scale);
    }
    int result(const char* name, int64_t n) {
        return c.add_arg(GuardedBuffer(name, c.activations, n));
    }
};

inline void bounds(KernelCase& c, DType narrow) {
    c.tolerance = std::max(c.tolerance, narrowed_bound(c.activations));
    c.matrix_tolerance = std::max(narrowed_bound(narrow), c.tolerance);
}

enum class Plain { kGated, kAdd, kScale, kSelect };

KernelCase embedding_case(DType dtype, DType activations);
KernelCase rms_norm_case(DType dtype, int64_t out, int64_t group);
KernelCase rope_case(int64_t rotary, bool interleaved);
KernelCase kv_append_case(bool host, DType dtype);
KernelCase plain_case(Plain which, int64_t n, DType activations);
KernelCase all_reduce_case(int64_t sources, int64_t out, bool residual, bool norm,
                           DType activations);
KernelCase argmax_case(int64_t vocabulary);
// The case's kernel with elementwise operators behind it, on rows of `n` features.
KernelCase with_tail(KernelCase c, int64_t n, const codegen::Tail& tail);
KernelCase copy_case(DType from, DType to);

}  // namespace cleave::test
