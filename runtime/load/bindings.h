// SPDX-License-Identifier: Apache-2.0
// Instructions with their addresses filled in: the argument words of every launch, built once; only
// the counts of a pass are written into them later.
#pragma once

#include <optional>
#include <vector>

#include "codegen/kernel/program.h"
#include "runtime/load/arenas.h"
#include "runtime/load/peer_access.h"

namespace cleave::runtime {

// The lengths of one pass.
struct PassShape {
    int64_t num_tokens = 0;
    int64_t num_outputs = 0;
    int64_t num_sequences = 0;
    int64_t num_singles = 0;  // sequences of one token before the first of several
};

struct BoundLaunch {
    planner::StepId step;
    int kernel = -1;
    const codegen::Launch* launch = nullptr;   // of the Program
    const std::string* kernel_name = nullptr;  // likewise
    std::vector<uint64_t> args;
    struct Patch {
        size_t arg = 0;
        codegen::BatchField field = codegen::BatchField::kNumTokens;
    };
    std::vector<Patch> patches;  // words that change from pass to pass
    bool of_singles = false;     // its counts are those of PassShape::num_singles
    // In place of this launch in passes of at most `most_tokens`; the fewest first.
    std::vector<BoundLaunch> narrow;
    int64_t most_tokens = 0;
};

// The launches of `program` in one phase, in step order. `program` must outlive them. InternalError
// naming the step for an argument that the plan does not place on this device, and for a kernel
// whose tile is not the step's.
std::vector<BoundLaunch> bind_launches(const planner::Plan& plan, const codegen::Program& program,
                                       bool is_prefill, const Arenas& arenas,
                                       const PeerLinks& peers);

// The launch by which the device meets its peers, where it has any.
std::optional<BoundLaunch> bind_meeting(const planner::Plan& plan, const codegen::Program& program,
                                        const Arenas& arenas, const PeerLinks& peers);

// The launch by which the output device chooses tokens after a pass of that phase, where it does.
std::optional<BoundLaunch> bind_greedy(const planner::Plan& plan, const codegen::Program& program,
                                       bool is_prefill, const Arenas& arenas,
                                       const PeerLinks& peers);

// Launches with the counts of this pass; nothing where they leave no block.
void launch(Device& device, BoundLaunch& bound, const PassShape& pass);

}  // namespace cleave::runtime
