// SPDX-License-Identifier: Apache-2.0
// The tables of `cleave inspect`'s text. Devices, stages, layers and kernels that are alike are one
// row, whose differences are ranges. `width`: as planner/plan/text_table.h has it.
#pragma once

#include <string>

#include "tools/inspect/inspection.h"

namespace cleave::tools {

std::string layers_text(const Inspection& inspection, int width);
std::string memory_text(const Inspection& inspection, int width);
std::string times_text(const Inspection& inspection, int width);
std::string kernels_text(const Inspection& inspection, int width);

}  // namespace cleave::tools
