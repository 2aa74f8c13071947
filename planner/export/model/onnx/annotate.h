// SPDX-License-Identifier: Apache-2.0
// A plan as the multi-device annotations of ONNX (IR 11), and back. In: a plan, and the model that
// it was made for. What the standard says stands where it says it: ModelProto.configuration
// "cleave", and for each node its pipeline stage and the sharding of the weights it multiplies
// with. What it cannot say stands in metadata under "cleave.": of a node its operator, its devices,
// unequal shards and sums; of the model the stages' devices and the plan itself.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <onnx/onnx_pb.h>

#include "planner/plan/plan.h"

namespace cleave::planner {

inline constexpr const char* kConfiguration = "cleave";
inline constexpr const char* kMetadataPrefix = "cleave.";

// Writes the annotations into `model`, in place of any earlier ones of this project.
void annotate(const Plan& plan, onnx::ModelProto& model);

// Without the annotations of this project; those of others stay.
void strip_annotations(onnx::ModelProto& model);

// The bytes of a plan file in the model's metadata, in place of what was there; and out of them.
void embed_plan_file(const std::string& bytes, onnx::ModelProto& model);
std::optional<std::string> embedded_plan_file(const onnx::ModelProto& model,
                                              const std::string& origin);

// The plan that annotate() embedded; nothing when there is none. UserError for one that is damaged.
std::optional<Plan> embedded_plan(const onnx::ModelProto& model, const std::string& origin);

// The node's name, or its first output's.
std::string label_of(const onnx::NodeProto& node);

// The whole file; external data is not read. UserError for what is no ONNX model.
onnx::ModelProto read_model_file(const std::string& path);

}  // namespace cleave::planner
