// SPDX-License-Identifier: Apache-2.0
// Variables of the environment for GPUs whose driver is at fault in something that is only faster,
// and the rule of what of it a plan's devices may use. UserError for a value that is neither 0
// nor 1.
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

// Whether launches of a device may overlap as far as its plan goes. Not where its card has several
// devices of the plan one of which exchanges by peer memory: all blocks of such an exchange have to
// stand on the card at once, and blocks that began early hold places there. They do not wait for
// the exchange itself (runtime/drivers/gpu/gpu_driver.h keeps them off both its sides, on their own
// stream), so that none would wait for ever; but such plans are for tests, and this needs no proof.
bool may_overlap(const planner::Plan& plan, planner::DeviceId device);

}  // namespace cleave::runtime
