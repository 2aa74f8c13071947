// SPDX-License-Identifier: Apache-2.0
// Switches for optimisations of GPUs whose driver has a fault in one of them (variables of
// runtime/base/environment.cpp), and which of them a plan's devices may use. UserError for a value
// that is neither 0 nor 1.
#pragma once

#include <vector>

#include "planner/plan/plan.h"

namespace cleave::runtime {

// CLEAVE_GPU_GRAPHS: decode is captured as graphs and replayed.
bool wants_graphs();
// CLEAVE_GPU_OVERLAP: launches may begin before those before them have ended.
bool wants_overlap();

// CLEAVE_HIP_POOLS: AMD's cards allocate from pools. Not unless asked for: in ROCm 6.3 pools are
// full where the card is not (ROCm/hip issue 3775), in 7.0 to 7.2 they fail or crash on gfx11
// (ROCm/legacy-rocm-build issue 6178), and one that is full ends the process in a double free
// (ROCm/rocm-systems issue 11642).
bool wants_hip_pools();

// The plan's devices on the card of one of them, itself included: logical devices of a card share
// the driver's context.
std::vector<planner::DeviceId> devices_on_card(const planner::Plan& plan, planner::DeviceId device);

// Whether the plan lets launches of a device overlap. Not where several devices of the plan share
// its card and one of them exchanges by peer memory: all blocks of an exchange must be resident on
// the card at once, and blocks that begin early take places there. Such plans are for tests.
bool may_overlap(const planner::Plan& plan, planner::DeviceId device);

}  // namespace cleave::runtime
