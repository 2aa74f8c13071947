// SPDX-License-Identifier: Apache-2.0
// The driver of codegen: a Plan -> the Programs of its devices, compiled.
#pragma once

#include <vector>

#include "codegen/compile/compiler.h"
#include "codegen/kernel/program.h"

namespace cleave::codegen {

// Writes every kernel and instruction of `device`; `reproducible` as in CompileOptions. UserError
// naming operator and layer for what the device's back end cannot compute (Opaque). Never compiles
// anything.
Program generate_program(const planner::Plan& plan, planner::DeviceId device,
                         bool reproducible = false);

// Generates and compiles the Programs of the devices, in their order; those of devices that are not
// wanted (CompileOptions::devices) are empty. Where a kernel's object asked
// for more than its device has, a smaller tile was taken: it is written into the plan's steps, and
// the plan is proved again. Throws what generate_program, compile and verify_plan throw.
std::vector<CompiledProgram> compile_plan(planner::Plan& plan, const CompileOptions& options);

// Writes the tile of each kernel of a step into the step; whether one has changed.
bool take_tiles(const Program& program, planner::Plan& plan);

// InternalError unless each kernel of a step has the step's tile.
void check_tiles(const planner::Plan& plan, const Program& program);

}  // namespace cleave::codegen
