// SPDX-License-Identifier: Apache-2.0
// One rank's share of a stage as one ONNX model: its segments in order, with a DistCollective node in place of each
// exchange among the stage's devices. Inputs and outputs are those of the segments that no other segment of the rank
// makes or takes.
#pragma once

#include <string>

#include <onnx/onnx_pb.h>

#include "planner/export_model/segments.h"
#include "planner/export_model/tensor_file.h"

namespace cleave::planner {

onnx::ModelProto rank_model(const Plan& plan, const Schedule& schedule, int stage, DeviceId device,
                            TensorFile& data, const std::string& data_file);

}  // namespace cleave::planner
