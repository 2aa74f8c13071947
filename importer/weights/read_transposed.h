// SPDX-License-Identifier: Apache-2.0
// Rectangles of matrices that are stored transposed, as exporters store what a MatMul takes: [in,
// out].
#pragma once

#include <cstddef>
#include <cstdint>

#include "importer/graph/graph.h"

namespace cleave::importer {

// Rows of a tile: what is read in parts should be read in multiples of so many.
inline constexpr int64_t kTransposedTileRows = 64;

// Source element (c, r) becomes destination (r, c), for r in `rows` and c in `columns`: `source` is
// [.., source_columns] of `from`, `destination` [rows, columns] row major of `to`. Floating types,
// or the same type of whole bytes twice. Sources are read in runs of some cache lines, so that a
// whole matrix costs about what its copy does.
void read_transposed(const std::byte* source, int64_t source_columns, Range rows, Range columns,
                     DType from, DType to, std::byte* destination);

}  // namespace cleave::importer
