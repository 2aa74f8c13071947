// SPDX-License-Identifier: Apache-2.0
// The greedy choice of a token, as the host makes it; kernels of GPUs make the same (codegen/templates/gpu/reduce.cuh).
#pragma once

#include <cstdint>
#include <span>

namespace cleave::runtime {

// The place of the largest of a row of logits, the first among equals. InternalError where one is NaN.
int32_t largest_logit(std::span<const float> logits);

// A token that a device chose: -1 stands for a row with a NaN. InternalError for it, too.
int32_t checked_token(int32_t token);

}  // namespace cleave::runtime
