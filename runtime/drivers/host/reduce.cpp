// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/host/reduce.h"

#include <algorithm>

#include "runtime/base/convert.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

// Elements summed at a time: the accumulators stay in the first-level cache.
constexpr int64_t kTile = 1024;

void add(float* __restrict sum, const float* __restrict term, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sum[i] += term[i];
}

// Elements [begin, begin + count) of `base` as f32: in place, or converted into `buffer`.
const float* as_f32(const std::byte* base, int64_t begin, int64_t count, DType dtype,
                    float* buffer) {
    const std::byte* from = base + dtype_bytes(dtype, begin);
    if (dtype == DType::kF32) return reinterpret_cast<const float*>(from);
    convert_elements(dtype, from, DType::kF32, buffer, count);
    return buffer;
}

}  // namespace

void reduce_elements(std::span<const std::byte* const> sources, const std::byte* residual,
                     std::byte* destination, int64_t begin, int64_t end, DType dtype) {
    CLEAVE_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16)
        << "a sum of " << dtype_name(dtype);
    alignas(64) float sum[kTile];
    alignas(64) float converted[kTile];
    for (int64_t first = begin; first < end; first += kTile) {
        int64_t count = std::min(kTile, end - first);
        if (sources.empty()) {
            std::fill_n(sum, count, 0.0f);
        } else {
            std::copy_n(as_f32(sources[0], first, count, dtype, converted), count, sum);
        }
        for (size_t s = 1; s < sources.size(); ++s)
            add(sum, as_f32(sources[s], first, count, dtype, converted), count);
        if (residual != nullptr) add(sum, as_f32(residual, first, count, dtype, converted), count);
        std::byte* to = destination + dtype_bytes(dtype, first);
        if (dtype == DType::kF32) {
            std::copy_n(sum, count, reinterpret_cast<float*>(to));
        } else {
            convert_elements(DType::kF32, sum, dtype, to, count);
        }
    }
}

}  // namespace cleave::runtime
