// SPDX-License-Identifier: Apache-2.0
// A Compute step of the plan -> what specialises its kernel, and its arguments in the order of the
// spec's comment in kernel_spec.h. The same for hosts and GPUs. UserError naming operator and layer
// for what no kernel computes.
#pragma once

#include <map>
#include <vector>

#include "codegen/lower/step_reader.h"

namespace cleave::codegen {

struct Lowered {
    KernelSpec spec;
    std::vector<Arg> args;
};

Lowered lower_step(const StepReader& step);

// An argument that is a number of the plan.
Arg immediate(int64_t value, std::string name);

// Kernels of a program so far, by name: equal specs give equal names.
class KernelTable {
public:
    explicit KernelTable(Program& program) : program_(program) {}

    int add(Kernel kernel) {
        auto [at, fresh] =
            index_.try_emplace(kernel.name, static_cast<int>(program_.kernels.size()));
        if (fresh) program_.kernels.push_back(std::move(kernel));
        return at->second;
    }

private:
    Program& program_;
    std::map<std::string, int> index_;
};

}  // namespace cleave::codegen
