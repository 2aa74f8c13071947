// SPDX-License-Identifier: Apache-2.0
// A plan for ONNX Runtime: one model per pipeline stage; of a tensor-parallel stage one per rank,
// cut at each exchange, so that stock builds run them. Beside them: each device's weights (external
// data), pipeline.json (the order of models and exchanges), run.py (a runner on numpy and
// onnxruntime), and, where every stage is one model, genai_config.json (a decoder pipeline of
// onnxruntime-genai).
#pragma once

#include "planner/export/export.h"

namespace cleave::planner {

ExportResult export_ort(const Plan& plan);

// For an ONNX Runtime that is built with NCCL: one whole model a rank, with AllReduce and AllGather
// of com.microsoft, and run_rank.py. UserError for more than one stage (its communicator is all
// processes), unequal parts, other GPUs.
ExportResult export_ort_collectives(const Plan& plan);

}  // namespace cleave::planner
