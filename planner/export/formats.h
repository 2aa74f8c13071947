// SPDX-License-Identifier: Apache-2.0
// The exporters that need the plan alone, a file each; planner/export/export.cpp has the table.
#pragma once

#include "planner/export/export.h"

namespace cleave::planner {

ExportResult export_text(const Plan& plan);
ExportResult export_json(const Plan& plan);
ExportResult export_dot(const Plan& plan);
ExportResult export_vllm(const Plan& plan);
ExportResult export_llama_cpp(const Plan& plan);
ExportResult export_accelerate(const Plan& plan);

}  // namespace cleave::planner
