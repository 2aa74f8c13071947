// SPDX-License-Identifier: Apache-2.0
// The Program of a GPU (cuda, hip, sim) or of a simt device: each Compute step of the plan becomes
// a KernelSpec, a kernel with the plan's tile (equal ones once) and an instruction. `Program::arch`
// is the architecture's name, with "simt:" in front where the CPU imitates it.
#pragma once

#include <string_view>

#include "codegen/kernel/program.h"

namespace cleave::codegen {

Program generate_gpu_program(const planner::Plan& plan, planner::DeviceId device);

// The architecture that an arch "simt:sm_80" imitates; empty for others.
std::string_view simt_arch_of(std::string_view program_arch);
// The architecture that a program's kernels are written for, imitated or not.
std::string_view gpu_arch_of(std::string_view program_arch);

}  // namespace cleave::codegen
