// SPDX-License-Identifier: Apache-2.0
// The sum of an all-reduce on the CPU: f32 accumulation in source order, then the residual, then
// one rounding to the activation dtype. The order is fixed, so every member and every run gets the
// same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"

namespace cleave::runtime {

// destination[i] = sources[0][i] + sources[1][i] + ... + residual[i] for i in [begin, end);
// `residual` may be null. f32, f16 and bf16. `destination` may be `residual`.
void reduce_elements(std::span<const std::byte* const> sources, const std::byte* residual,
                     std::byte* destination, int64_t begin, int64_t end, DType dtype);

}  // namespace cleave::runtime
