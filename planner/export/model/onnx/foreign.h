// SPDX-License-Identifier: Apache-2.0
// The plan that ONNX's multi-device annotations alone describe, whoever wrote them. In: an
// annotated model, the Graph recovered from it, a machine with as many devices as the model's first
// configuration. Out: the plan with the stages of the nodes' pipeline_stage (or of their devices,
// where no stage is said), each on the devices that its nodes name, and with the equal shards that
// the standard means; and a finding for each node whose annotation no plan can follow.
//
// A node that belongs to one operator says where that operator runs; nodes that several operators
// share (masks, tables) run where they are needed, whatever the file says of them.
#pragma once

#include <optional>
#include <vector>

#include <onnx/onnx_pb.h>

#include "planner/export/model/onnx/check.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

struct ForeignPlan {
    bool complete =
        false;  // every part of the model has a stage or devices; else nothing is decided
    std::optional<Plan> plan;  // there when complete and without findings that forbid it
    std::vector<AnnotationFinding> findings;
};

ForeignPlan plan_as_annotated(const onnx::ModelProto& model, const Graph& graph,
                              const Machine& machine, const Workload& workload);

}  // namespace cleave::planner
