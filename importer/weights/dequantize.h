// SPDX-License-Identifier: Apache-2.0
// A rectangle of a quantised weight, expanded or repacked. Expanded: (q - zero_point) * scale in
// f32, then rounded once to the destination's type, for the reference and for `--dtype`. Repacked:
// as importer/weights/quantized_shard.h says, for the kernels.
#pragma once

#include <span>

#include "importer/weights/quantized_shard.h"

namespace cleave::importer {

class WeightReader;

// Logical rows x columns of `weight` as [rows, columns] of type `to`. `destination` has exactly
// that size.
void dequantize(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                DType to, std::span<std::byte> destination);

// Logical rows x columns as codes, scales and zero points. `columns` begins where a block does.
// Each part has exactly the rows' bytes by quantized_layout.
void pack_quantized(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                    const QuantizedParts& parts);

}  // namespace cleave::importer
