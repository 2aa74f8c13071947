// SPDX-License-Identifier: Apache-2.0
// The Program of a host device: each Compute step of the plan becomes a KernelSpec, a kernel (equal
// specs once) and an instruction.
#pragma once

#include "codegen/kernel/program.h"

namespace cleave::codegen {

Program generate_host_program(const planner::Plan& plan, planner::DeviceId device,
                              bool reproducible);

}  // namespace cleave::codegen
