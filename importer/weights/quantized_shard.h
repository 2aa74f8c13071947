// SPDX-License-Identifier: Apache-2.0
// The layout of a rectangle of a quantised weight on a device. In: a Weight and a rectangle; out:
// the format that a kernel is specialised for, and the offsets of its three parts. It is the same
// for every exporter's packing:
//  - codes: row by row, unsigned, each row padded to whole groups of 32. Byte j of a group of 4-bit
//    codes holds element j in its lower half and element 16 + j in its upper half, so that vectors
//    come out in order;
//  - scales [rows, blocks]: one for a block of `block` columns, in the type of the file;
//  - zero points [rows, blocks]: absent, integers as wide as the codes (each row in whole bytes,
//  the
//    lower half first), or floating. The logical weight is (code - zero point) * scale.
// Signed integers become unsigned by adding 2^(bits-1) to codes and zero points: no value changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "importer/graph/graph.h"
#include "importer/weights/formats.h"

namespace cleave::importer {

enum class ZeroPoints : uint8_t { kConstant, kInteger, kFloating };

struct QuantizedFormat {
    DType code = DType::kUInt4;  // QuantizedType::code
    int64_t block = 0;           // columns that share a scale; 0: the whole row
    DType scale = DType::kF32;
    ZeroPoints zero_points = ZeroPoints::kConstant;
    int constant_zero = 0;             // kConstant
    DType zero_point = DType::kF32;    // kFloating
    bool dynamic_activations = false;  // the product is of integers, see Quantization
    friend bool operator==(const QuantizedFormat&, const QuantizedFormat&) = default;
};

inline constexpr int64_t kCodeGroup = 32;

// Where the parts of [rows, columns] begin, and what they take in all.
struct QuantizedLayout {
    int64_t row_bytes = 0;  // of codes
    int64_t blocks = 0;     // of a row
    int64_t scale_row_bytes = 0, zero_row_bytes = 0;
    int64_t scales_offset = 0, zeros_offset = 0;
    int64_t bytes = 0;
};

// Destinations of some rows of each part.
struct QuantizedParts {
    std::span<std::byte> codes, scales, zero_points;
};

// Whether the weight is quantised and stays so on a device that holds it as `dtype`.
bool stays_quantized(const Weight& weight, DType dtype);

// Whether some product is of integers: its activations are quantised by all of a pass's tokens
// (DynamicQuantizeLinear).
bool has_dynamic_activations(const Graph& graph);

QuantizedFormat quantized_format(const Weight& weight);
QuantizedFormat rounded_format(const QuantizedType& type);  // of what `--dtype` makes
QuantizedLayout quantized_layout(const QuantizedFormat& format, int64_t rows, int64_t columns);

}  // namespace cleave::importer
