// SPDX-License-Identifier: Apache-2.0
// A folder whose tensors ONNX has no words for (GPTQ, AWQ, float8, zero points of
// compressed-tensors, several float types): the Graph of its shape, whose weights view the folder's
// tensors as they lie.
#pragma once

#include "importer/graph/graph.h"
#include "models/model_folder.h"
#include "models/shapes.h"

namespace cleave::models {

bool needs_views(const ModelFolder& folder, const Shape& shape);

// UserError for a tensor that is missing, left over, of another shape or of another type, and for
// groups in another order than their inputs.
importer::Graph import_views(const ModelFolder& folder, const Shape& shape);

// Buffers that older versions stored beside the weights, a head that is the embedding's, and sizes
// that compressed-tensors says twice.
bool is_left_out(const std::string& name, const Shape& shape);

}  // namespace cleave::models
