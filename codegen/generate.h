// SPDX-License-Identifier: Apache-2.0
// The driver of codegen: one device of a Plan -> its Program.
#pragma once

#include <vector>

#include "codegen/kernel/program.h"

namespace cleave::codegen {

// Writes every kernel and instruction of `device`. UserError naming operator and layer for what the
// device's back end cannot compute (Opaque). Never compiles anything.
Program generate_program(const planner::Plan& plan, planner::DeviceId device);

// Puts the kernels that were compiled instead into their places. Before launches are bound.
void adopt_compiled(Program& program, const std::vector<CompiledKernel>& compiled);

}  // namespace cleave::codegen
