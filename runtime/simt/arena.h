// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cleave::runtime::simt {

// Address space of a block's shared memory: more than any architecture has, with its gaps.
inline constexpr uint64_t kArenaBytes = 1 << 20;

}  // namespace cleave::runtime::simt
