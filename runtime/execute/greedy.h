// SPDX-License-Identifier: Apache-2.0
// The greedy choice of a token, as the host makes it; kernels of GPUs make the same
// (codegen/templates/gpu/reduce.cuh).
#pragma once

#include <cstdint>
#include <span>

namespace cleave::runtime {

// In place of a token where a logit of the row is NaN (runtime/generate/nan_check.h has the error).
inline constexpr int32_t kNoToken = -1;

// Whether none of them is NaN.
bool are_numbers(std::span<const float> logits);

// The place of the largest of a row of logits, the first among equals; kNoToken where one is NaN.
int32_t largest_logit(std::span<const float> logits);

}  // namespace cleave::runtime
