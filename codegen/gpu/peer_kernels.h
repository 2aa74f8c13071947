// SPDX-License-Identifier: Apache-2.0
// Kernels of steps that exchange values by peer memory (planner/cost/peer_exchange.h,
// templates/gpu/peer.cuh). In: such a step, the device that takes part; out: its launches, in the
// order in which they run. Several devices of a step have the same kernels but for the sizes of
// slices.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "codegen/kernel/spec.h"
#include "codegen/lower/lower_step.h"
#include "planner/cost/peer_exchange.h"

namespace cleave::codegen {

// Further arguments of each, at its end: rows, mailbox, limit, tag.

// Args: source, area, own, here[receivers], there[receivers].
struct PeerSendSpec {
    planner::PeerCut cut;
    int64_t devices = 1;  // of the machine
    int64_t row_bytes = 0;
    int64_t slice = 0;
    int64_t receivers = 1;
};

// Args: area[sources], here[sources], there[sources], out.
struct PeerReceiveSpec {
    struct Source {
        int64_t row_bytes = 0;
        int64_t offset = 0;  // bytes, in a row of the destination
        int64_t slice = 0;
    };
    planner::PeerCut cut;
    int64_t devices = 1;
    std::vector<Source> sources;
    int64_t stride = 0;  // bytes of a row of the destination
};

// Args: partial, own_area, own, area[sources], source_here[sources], source_there[sources],
// here[members], there[members], place, [residual,] out, [norm, normed].
struct PeerAllReduceSpec {
    planner::PeerCut cut;
    int64_t devices = 1;
    int64_t out = 0;              // features of a row
    std::vector<int64_t> slices;  // by source
    int64_t own_slice = 0;
    int64_t members = 2;
    bool residual = false;
    bool two_phase = false;
    std::optional<NormSpec> norm =
        {};  // of the sum with its residual; the cut is by rows, in one exchange
};

// Args: here[members], there[members]; no rows.
struct PeerMeetSpec {
    int64_t channels = 1;
    int64_t devices = 1;
    int64_t members = 1;
};

using PeerSpec = std::variant<PeerMeetSpec, PeerSendSpec, PeerReceiveSpec, PeerAllReduceSpec>;
Kernel make_peer_kernel(const PeerSpec& spec, const GpuTarget& target);

// A launch by which `device` meets all that it exchanges with by peer memory, before the first
// pass: their kernels must be able to run at the same time. Nothing for a device without peers. Its
// step is none.
std::optional<Instruction> lower_meeting(const planner::Plan& plan, planner::DeviceId device,
                                         const GpuTarget& target, KernelTable& kernels);

// The launches of `device` in a step that goes by peers; none where it takes no part.
std::vector<Instruction> lower_exchange(const planner::Plan& plan, bool is_prefill,
                                        planner::StepId step, planner::DeviceId device,
                                        const GpuTarget& target, KernelTable& kernels);

}  // namespace cleave::codegen
