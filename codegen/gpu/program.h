// SPDX-License-Identifier: Apache-2.0
// The Program of a GPU (cuda, hip, sim) or of a simt device: each Compute step of the plan becomes
// a KernelSpec, a kernel with the plan's tile (equal ones once) and an instruction.
#pragma once

#include "codegen/kernel/program.h"

namespace cleave::codegen {

// `reproducible`: decode has the kernels of the batch alone, and no narrower ones.
Program generate_gpu_program(const planner::Plan& plan, planner::DeviceId device,
                             bool reproducible = false);

}  // namespace cleave::codegen
