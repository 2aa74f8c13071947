// SPDX-License-Identifier: Apache-2.0
#include "planner/tiles/host.h"

#include <algorithm>

#include "runtime/base/rounding.h"

namespace cleave::planner {

namespace {

// Bounds over all CPUs of the host templates' vectors, register tiles and conversion strips; each
// kernel's text asserts that they hold (codegen/templates/host).
constexpr int64_t kMaxLanes = 16;
constexpr int64_t kMaxTileRows = 12;
constexpr int64_t kConvertDepth = 256;

// Of a second-level cache, for a thread's block of tokens.
constexpr int64_t kBlockBytes = 1 << 20;

}  // namespace

int64_t host_tokens(int64_t depth) {
    const int64_t fit = kBlockBytes / (std::max<int64_t>(1, round_up(depth, kMaxLanes)) * 4);
    return std::clamp<int64_t>(fit / (2 * kMaxLanes) * (2 * kMaxLanes), 2 * kMaxLanes, 128);
}

int64_t host_rows(int64_t outputs, int64_t threads) {
    const int64_t wanted = outputs / std::max<int64_t>(8 * threads, 1);
    return std::clamp<int64_t>(wanted / kMaxTileRows * kMaxTileRows, kMaxTileRows, 96);
}

int64_t host_scratch_bytes(int64_t depth, int64_t tokens, int64_t rows, int64_t copies) {
    const int64_t floats = round_up(tokens, kMaxLanes) * round_up(depth, kMaxLanes) +
                           copies * tokens * (rows + kMaxLanes) + kMaxTileRows * kConvertDepth;
    return round_up(floats * 4, 64);
}

}  // namespace cleave::planner
