// SPDX-License-Identifier: Apache-2.0
// One rank's share of a stage as one ONNX model: its segments in order, with a collective node in place of each exchange
// among the stage's devices. Inputs and outputs are those of the segments that no other segment of the rank
// makes or takes.
#pragma once

#include <string>

#include <onnx/onnx_pb.h>

#include "planner/export_model/segments.h"
#include "planner/export_model/tensor_file.h"

namespace cleave::planner {

enum class CollectiveOps : uint8_t {
    kTensorRt,  // DistCollective, as polygraphy's shard tool writes it
    kMicrosoft,  // AllReduce and AllGather of com.microsoft (onnxruntime, core/graph/contrib_ops/collective_defs.cc)
};

// UserError where a rank has no part in an exchange, or parts that are gathered are unequal: neither has room for it.
void check_collectives(const Plan& plan, const Schedule& schedule, const std::string& tool);

onnx::ModelProto rank_model(const Plan& plan, const Schedule& schedule, int stage, DeviceId device,
                            CollectiveOps ops, TensorFile& data, const std::string& data_file);

}  // namespace cleave::planner
