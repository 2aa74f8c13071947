// SPDX-License-Identifier: Apache-2.0
// Builds the Graph of a shape directly, without an ONNX file and without weight data: what
// import_onnx recovers from the file that models/onnx_writer.h writes for the same shape, names
// apart.
#pragma once

#include "importer/graph/graph.h"
#include "models/shapes.h"

namespace cleave::models {

importer::Graph build_llama_graph(const Shape& shape, DType weight_dtype);

// Inverse frequencies of the shape's rotary embedding, [head_dim / 2], f32 from double (llama3
// scaling included).
std::vector<float> rope_frequencies(const Shape& shape);

}  // namespace cleave::models
