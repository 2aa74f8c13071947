// SPDX-License-Identifier: Apache-2.0
// Plans of whole models for GPUs that nobody has here, for tests of what codegen makes of them. In: the shape of a model,
// an architecture, how many devices share each layer; out: the plan, its first device's Program.
#pragma once

#include <string>

#include "codegen/gpu_arch.h"
#include "codegen/program.h"
#include "planner/plan.h"

namespace cleave::test {

// For `devices` devices of `arch` in tensor parallelism that reach each other's memory, in bf16, contexts of 4096 tokens.
planner::Plan plan_for_arch(const std::string& shape, const codegen::GpuArch& arch, int devices);

codegen::Program program_for(const std::string& shape, const codegen::GpuArch& arch, int devices);

}  // namespace cleave::test
