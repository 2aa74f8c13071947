// SPDX-License-Identifier: Apache-2.0
// The host's side of codegen/templates/gpu/mailbox.cuh: the tag that names a step to its kernels,
// and what a kernel's word in the mailbox says. In: a step, or that word. Always: missed_wait reads
// what a kernel with peer_tag's tag wrote.
#pragma once

#include <cstdint>
#include <optional>

#include "codegen/templates/gpu/mailbox.cuh"
#include "planner/plan/plan.h"

namespace cleave::codegen {

int64_t peer_tag(bool is_prefill, planner::StepId step);

// A wait that a kernel gave up.
struct MissedWait {
    bool is_meeting = false;  // before the first pass; `whom` is a peer by its position
    bool is_prefill = false;
    planner::StepId step;        // none of a meeting
    bool is_unreleased = false;  // `whom` is a device that did not take the message before
    size_t whom = 0;             // else a source of the step, by its position
};
// Nothing for a word that no kernel wrote.
std::optional<MissedWait> missed_wait(uint32_t lost);

}  // namespace cleave::codegen
