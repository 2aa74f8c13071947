// SPDX-License-Identifier: Apache-2.0
// One segment as an ONNX model that a stock ONNX Runtime runs: opset 17, standard operators only,
// f32 arithmetic.
//
// Activations are [batch, sequence, features]. Inputs besides the segment's own: attention_mask
// [batch, total] (1: a token, 0: padding) and position_ids [batch, sequence], int64;
// past_key_values.N.{key,value} [batch, KV heads of this device, past, head_dim]. Outputs: the
// segment's, present.N.{key,value}; logits of every token.
#pragma once

#include <string>

#include <onnx/onnx_pb.h>

#include "planner/export/model/segments.h"
#include "planner/export/model/tensor_file.h"

namespace cleave::planner {

// `data` holds the device's constants, in a file named `data_file` beside the model.
onnx::ModelProto lower_segment(const Plan& plan, const Segment& segment, TensorFile& data,
                               const std::string& data_file);

}  // namespace cleave::planner
