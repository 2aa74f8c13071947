// SPDX-License-Identifier: Apache-2.0
// A folder whose quantised matrices ONNX has no words for (GPTQ, AWQ, float8): the Graph of its
// shape, whose weights view the folder's tensors as they lie.
#pragma once

#include "importer/graph/graph.h"
#include "models/model_folder.h"
#include "models/shapes.h"

namespace cleave::models {

bool needs_views(const Shape& shape);

// UserError for a tensor that is missing, left over, of another shape or of another type, and for
// groups in another order than their inputs.
importer::Graph import_views(const ModelFolder& folder, const Shape& shape);

}  // namespace cleave::models
