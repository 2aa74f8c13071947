// SPDX-License-Identifier: Apache-2.0
// The tile of a host's matrix product, by arithmetic on its sizes. In: features, rows, threads;
// out: tokens of a block, rows of a work item, scratch of a thread. The planner chooses by it,
// codegen claims by it.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/dtype.h"

namespace cleave::planner {

// Tokens that a thread makes ready together: as many as its part of the caches holds, in whole
// vectors. `rounding`: the type that products round them to; none: f32.
int64_t host_tokens(int64_t depth, std::optional<DType> rounding = {});

// Rows of a work item: whole register tiles, or whole vectors of rows where products round; few
// enough that every thread gets several items.
int64_t host_rows(int64_t outputs, int64_t threads, std::optional<DType> rounding = {});

// Bytes: the block of tokens, the f32 sums of `copies` results, a strip of converted weights.
int64_t host_scratch_bytes(int64_t depth, int64_t tokens, int64_t rows, int64_t copies,
                           std::optional<DType> rounding = {});

}  // namespace cleave::planner
