// SPDX-License-Identifier: Apache-2.0
// The stages as a decoder pipeline of onnxruntime-genai: genai_config.json, where every stage is
// one model on one device; else a sentence in `not_expressed`.
#pragma once

#include "planner/export/export.h"
#include "planner/export/model/segments.h"

namespace cleave::planner {

void add_genai_config(const Plan& plan, const Schedule& schedule,
                      const std::vector<std::string>& model_names, ExportResult& result);

}  // namespace cleave::planner
