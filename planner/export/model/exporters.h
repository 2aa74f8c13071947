// SPDX-License-Identifier: Apache-2.0
// Every exporter: those of the plan alone (planner/export/export.h), and those of this folder,
// which read the plan's ONNX file.
#pragma once

#include <vector>

#include "planner/export/export.h"

namespace cleave::planner {

// In the order in which they are listed to people.
std::vector<Exporter> all_exporters();

}  // namespace cleave::planner
