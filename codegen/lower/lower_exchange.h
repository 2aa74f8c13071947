// SPDX-License-Identifier: Apache-2.0
// A step that goes by peer memory -> the launches of one device: a transfer, gather or all-reduce.
// In: the step and the device; out: specs and arguments, in the order in which they run.
#pragma once

#include <optional>
#include <vector>

#include "codegen/kernel/arg.h"
#include "codegen/kernel/peer_spec.h"

namespace cleave::codegen {

struct LoweredExchange {
    PeerSpec spec;
    std::vector<Arg> args;
};

// A launch by which `device` meets all that it exchanges with by peer memory, before the first
// pass: their kernels must be able to run at the same time. Nothing for a device without peers.
std::optional<LoweredExchange> lower_meeting(const planner::Plan& plan, planner::DeviceId device);

// The launches of `device` in a step that goes by peers; none where it takes no part. Values are of
// `activations`.
std::vector<LoweredExchange> lower_exchange(const planner::Plan& plan, bool is_prefill,
                                            planner::StepId step, planner::DeviceId device,
                                            DType activations);

}  // namespace cleave::codegen
