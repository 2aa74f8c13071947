// SPDX-License-Identifier: Apache-2.0
// The kernels of a Program being written. In: kernels and the arguments of their launches; out:
// instructions. Equal kernels are kept once. The one place where arguments meet parameters:
// InternalError unless their names are equal, in order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/kernel/program.h"

namespace cleave::codegen {

class KernelTable {
public:
    explicit KernelTable(Program& program) : program_(program) {}

    // A launch of `kernel`, which is added unless an equal one is there.
    Instruction launch(planner::StepId step, Kernel kernel, std::vector<Arg> args);
    // A launch of a kernel that was added before.
    Instruction launch(planner::StepId step, int kernel, std::vector<Arg> args);

private:
    Program& program_;
    std::map<std::string, int> index_;  // by name
};

}  // namespace cleave::codegen
