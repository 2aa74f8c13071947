// SPDX-License-Identifier: Apache-2.0
// The plan's own ONNX file with multi-device annotations (annotate.h). External data is copied
// beside it, under the same names: the standard lets a model refer to files in its own folder only.
#pragma once

#include "planner/export/export.h"

namespace cleave::planner {

ExportResult export_onnx(const Plan& plan);

}  // namespace cleave::planner
