// SPDX-License-Identifier: Apache-2.0
// Rectangles of matrices that a GGUF file keeps in blocks: a scale (and a smallest value) beside
// the codes of 32 or 256 elements of a row. In: a Weight with `gguf`. Out: expanded numbers; or, of
// the types whose blocks are those of a quantised type (importer/weights/formats.h), codes and
// scales as a device has them. Formats: ggml's block_q4_0 ... block_q6_K (ggml-common.h) and their
// dequantize_row functions (ggml-quants.c).
#pragma once

#include <optional>
#include <span>

#include "importer/weights/quantized_shard.h"

namespace cleave::importer {

class WeightReader;

// How a device holds a GGUF type without loss; nothing: it has no such type.
struct GgufAsQuantized {
    DType dtype;       // of the weight
    bool zero_points;  // floating ones
};
std::optional<GgufAsQuantized> gguf_as_quantized(GgufType type);

// `count` whole blocks, each element in f32 as ggml computes it.
void expand_gguf_blocks(GgufType type, const std::byte* blocks, int64_t count, float* to);

// As dequantize.h's functions, for weights with `gguf` that are not rounded anew.
void expand_gguf(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
                 DType to, std::span<std::byte> destination);
void pack_gguf(const WeightReader& reader, const Weight& weight, Range rows, Range columns,
               const QuantizedParts& parts);

}  // namespace cleave::importer
