// SPDX-License-Identifier: Apache-2.0
// Expands a rectangle of a quantised weight to a floating type: (q - zero_point) * scale in f32, then
// rounded once to the destination's type. For the reference and for `--dtype`; kernels read packed bytes.
#pragma once

#include <span>

#include "importer/graph.h"

namespace cleave::importer {

class WeightReader;

// Logical rows x columns of `weight` as [rows, columns] of type `to`. `destination` has exactly that size.
void dequantize(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                DType to, std::span<std::byte> destination);

}  // namespace cleave::importer
