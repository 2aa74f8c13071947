// SPDX-License-Identifier: Apache-2.0
// A rectangle of a weight that is dense in its file and quantised as it is read
// (importer/weights/quantize.h): packed for the kernels, or expanded again. UserError where an
// element is no finite number.
#pragma once

#include <span>

#include "importer/weights/quantized_shard.h"

namespace cleave::importer {

class WeightReader;

// Code `i` of a row of 4-bit codes, in the order of importer/weights/quantized_shard.h, into a row
// that was zero.
inline void put_four_bits(std::byte* row, int64_t i, std::byte code) {
    row[i / kCodeGroup * 16 + i % 16] |= i % kCodeGroup < 16 ? code : code << 4;
}

// As dequantize.h's functions, for weights with Quantization::rounded_from.
void pack_rounded(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                  const QuantizedParts& parts);
void expand_rounded(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                    DType to, std::span<std::byte> destination);

}  // namespace cleave::importer
