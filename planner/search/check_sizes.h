// SPDX-License-Identifier: Apache-2.0
// In: an analysed graph, a machine and a workload. Refuses, before any search, what would leave the
// 64 bits in which bytes, operations and nanoseconds are counted. Throws UserError naming the flag,
// its value and the largest supported, or the weight that is too large.
#pragma once

#include "planner/analysis/analysis.h"

namespace cleave::planner {

inline constexpr int64_t kMostSequences = int64_t{1} << 20;
inline constexpr int64_t kMostPositions = int64_t{1}
                                          << 30;         // positions and rows are 32-bit on devices
inline constexpr int64_t kMostBytes = int64_t{1} << 50;  // of weights, of KV, or moved in one pass

void check_limits(const Analysis& analysis, const Machine& machine, const Workload& workload);

}  // namespace cleave::planner
