// SPDX-License-Identifier: Apache-2.0
// Instructions with their addresses filled in: the argument words of every launch, built once; only the counts of
// a pass are written into them later.
#pragma once

#include <vector>

#include "codegen/program.h"
#include "runtime/arenas.h"

namespace cleave::runtime {

struct BoundLaunch {
    planner::StepId step;
    int kernel = -1;
    const codegen::Launch* launch = nullptr;  // of the Program
    std::vector<uint64_t> args;
    struct Patch {
        size_t arg = 0;
        codegen::BatchField field = codegen::BatchField::kNumTokens;
    };
    std::vector<Patch> patches;  // words that change from pass to pass
};

// The launches of `program` in one phase, in step order. `program` must outlive them. InternalError naming the
// step for an argument that the plan does not place on this device.
std::vector<BoundLaunch> bind_launches(const planner::Plan& plan, const codegen::Program& program,
                                       bool is_prefill, const Arenas& arenas);

}  // namespace cleave::runtime
