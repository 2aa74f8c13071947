// SPDX-License-Identifier: Apache-2.0
// `--dtype int4`, `int8` and `f8e4m3`. In: a Graph and one of these types. Out: the Graph whose
// matrices are of that type. Nothing is read or computed here: weights are quantised as shards are
// cut (Quantization::rounded_from), block by block, so that the codes do not depend on how a matrix
// is divided.
//  - int4, int8: blocks of 32 along a row, an f16 scale each, no zero points: the formats Q4_0 and
//  Q8_0 of GGUF
//    (ggml-quants.c). int4: scale = -extreme / 8, where extreme is the element of largest
//    magnitude, with its sign; int8: scale = largest magnitude / 127.
//  - f8e4m3: an f32 scale for each row, its largest magnitude / 448, the largest number of the
//  type.
// Each element is rounded to the nearest code of the scale as it is stored.
#pragma once

#include <string>

#include "importer/graph/graph.h"

namespace cleave::importer {

// Whether `--dtype` of that type quantises, rather than converts from one floating type to another.
bool is_quantizing(DType dtype);

// Empty where the graph's weights can be quantised to that type. Otherwise why not: the type does
// not quantise, the graph has no matrices of Linear or Embedding operators, or they are quantised
// in another way already.
std::string why_not_quantized(const Graph& graph, DType to);

// UserError with that reason. Matrices that are of the type already stay as they are.
Graph quantize_weights(Graph graph, DType to);

}  // namespace cleave::importer
