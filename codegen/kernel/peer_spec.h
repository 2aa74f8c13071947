// SPDX-License-Identifier: Apache-2.0
// What specialises a kernel that exchanges values by peer memory (planner/cost/peer_exchange.h,
// templates/gpu/peer.cuh). Types only: lower/lower_exchange.h makes them, gpu/exchange.h takes
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "codegen/kernel/spec.h"
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

}  // namespace cleave::codegen
