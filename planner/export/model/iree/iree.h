// SPDX-License-Identifier: Apache-2.0
// A plan for IREE: model.mlir (flow.tensor.transfer between #hal.device.promise symbols, one for
// each device of the plan, those without work too), a safetensors file with each device's
// constants, and the flags that name the devices: to iree-compile by their symbols, to
// iree-run-module in the same order.
#pragma once

#include "planner/export/export.h"

namespace cleave::planner {

ExportResult export_iree(const Plan& plan);

}  // namespace cleave::planner
