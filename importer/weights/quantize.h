// SPDX-License-Identifier: Apache-2.0
// `--dtype` of a type that quantises (importer/weights/formats.h). In: a Graph and one of these
// types. Out: the Graph whose matrices are of that type. Nothing is read or computed here: weights
// are quantised as shards are cut (Quantization::rounded_from). Each block is quantised by itself,
// so that the codes do not depend on how a matrix is divided. Each element is rounded to the
// nearest code of the scale as it is stored.
#pragma once

#include <string>

#include "importer/graph/graph.h"
#include "importer/weights/formats.h"

namespace cleave::importer {

// Empty where the graph's weights can be quantised to that type. Otherwise why not: the type does
// not quantise, the graph has no matrices of Linear or Embedding operators, or they are quantised
// in another way already.
std::string why_not_quantized(const Graph& graph, DType to);

// The types of a GGUF file that no kernel computes with, "Q4_K (13 tensors), Q6_K (2 tensors)":
// their weights are to be quantised, or rounded, as shards are cut. Empty: there are none.
std::string types_to_requantize(const Graph& graph);

// UserError with that reason. Matrices that are of the type already stay as they are.
Graph quantize_weights(Graph graph, DType to);

// The graph with its matrices as the files hold them, where they are to be quantised as shards are
// cut: what quantize_weights was given.
Graph weights_as_stored(Graph graph);

}  // namespace cleave::importer
