// SPDX-License-Identifier: Apache-2.0
#include "planner/export/model/exporters.h"

#include "planner/export/model/iree/iree.h"
#include "planner/export/model/onnx/onnx.h"
#include "planner/export/model/ort/ort.h"
#include "planner/export/model/tensorrt/tensorrt.h"

namespace cleave::planner {
namespace {

constexpr Exporter kModelExporters[] = {
    {"onnx", "the model's own file with ONNX's multi-device annotations", export_onnx},
    {"ort", "models for ONNX Runtime: one per stage and rank, with weights and a runner",
     export_ort},
    {"ort-collectives", "one model a rank for ONNX Runtime built with NCCL, with its collectives",
     export_ort_collectives},
    {"iree", "an MLIR module for IREE with every device declared, weights and flags", export_iree},
    {"tensorrt", "ONNX models with DistCollective nodes, one per stage and rank", export_tensorrt},
};

}  // namespace

std::vector<Exporter> all_exporters() {
    std::vector<Exporter> exporters;
    for (const Exporter& exporter : plan_exporters()) exporters.push_back(exporter);
    for (const Exporter& exporter : kModelExporters) exporters.push_back(exporter);
    return exporters;
}

}  // namespace cleave::planner
