// SPDX-License-Identifier: Apache-2.0
// One rank's share of a stage as one ONNX model: its segments in order, with a collective node in
// place of each exchange among the stage's devices. Inputs and outputs are those of the segments
// that no other segment of the rank makes or takes.
#pragma once

#include <memory>
#include <string>

#include <onnx/onnx_pb.h>

#include "planner/export/export.h"
#include "planner/export/model/segments.h"
#include "planner/export/model/tensor_file.h"

namespace cleave::planner {

enum class CollectiveOps : uint8_t {
    kTensorRt,   // DistCollective, as polygraphy's shard tool writes it
    kMicrosoft,  // AllReduce and AllGather of com.microsoft (onnxruntime,
                 // core/graph/contrib_ops/collective_defs.cc)
};

// UserError where a rank has no part in an exchange, or parts that are gathered are unequal:
// neither has room for it.
void check_collectives(const Plan& plan, const Schedule& schedule, const std::string& tool);

// Adds a rank's model as the file `name`, and its weights as the device's data file. Whether
// weights were expanded.
bool add_rank(const Plan& plan, const Schedule& schedule, int stage, DeviceId device,
              CollectiveOps ops, const std::string& name,
              const std::shared_ptr<importer::WeightReader>& reader, ExportResult& result);

}  // namespace cleave::planner
