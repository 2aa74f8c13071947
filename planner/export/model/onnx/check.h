// SPDX-License-Identifier: Apache-2.0
// Checks the multi-device annotations of an ONNX file, whoever wrote them. In: a file. Out: the
// plan that they describe, proved, and every node whose annotation is missing, contradictory, or
// was lost by a rewrite of the file.
//
// Annotations of `cleave export --format onnx` are compared with the plan that they came with, node
// by node. Of others, the nodes' devices and stages become pins, and the planner completes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

struct AnnotationFinding {
    std::string node;     // empty: of the whole file
    std::string kind;     // "missing", "contradictory", "lost", "invalid"
    std::string message;  // what is wrong, and what was expected
};

struct AnnotationReport {
    std::string configuration;  // its name; empty: the file has none
    int num_nodes = 0, num_annotated = 0;
    bool has_embedded_plan = false;
    std::optional<Plan> plan;
    std::vector<AnnotationFinding> findings;
};

// UserError for what is no ONNX model, or has no annotations.
AnnotationReport check_annotations(const std::string& path);

}  // namespace cleave::planner
