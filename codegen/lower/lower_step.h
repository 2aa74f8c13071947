// SPDX-License-Identifier: Apache-2.0
// A Compute step of the plan -> what specialises its kernel, and its arguments in the order of the
// kernel's parameters. The same for hosts and GPUs. UserError naming operator and layer for what no
// kernel computes.
#pragma once

#include <vector>

#include "codegen/lower/step_reader.h"

namespace cleave::codegen {

struct Lowered {
    KernelSpec spec;
    std::vector<Arg> args;
};

Lowered lower_step(const StepReader& step);

}  // namespace cleave::codegen
