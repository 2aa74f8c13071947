// SPDX-License-Identifier: Apache-2.0
// A plan for TensorRT's multi-device inference: one ONNX model for each rank of each stage, with DistCollective nodes
// where the plan has all-reduces and gathers, as `polygraphy multi-device shard` writes them (NVIDIA/TensorRT,
// tools/Polygraphy/polygraphy/tools/multi_device/subtool/shard.py). Not that tool's hints file: it shards the sequence
// (context parallelism), and a plan shards heads, columns and vocabulary.
#pragma once

#include "planner/export.h"

namespace cleave::planner {

ExportResult export_tensorrt(const Plan& plan);

}  // namespace cleave::planner
