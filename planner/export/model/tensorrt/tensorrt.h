// SPDX-License-Identifier: Apache-2.0
// A plan for TensorRT's multi-device inference: one ONNX model for each rank of each stage, with
// DistCollective nodes where the plan has all-reduces and gathers, as `polygraphy multi-device
// shard` (0.53.6) writes them: the tests compare their attributes with that tool's own. Not its
// hints file, which the tool applies to a model of its own patterns (attention as it finds it,
// equal parts of whole layers): the nodes say what the plan says, bias and vocabulary included.
#pragma once

#include "planner/export/export.h"

namespace cleave::planner {

ExportResult export_tensorrt(const Plan& plan);

}  // namespace cleave::planner
