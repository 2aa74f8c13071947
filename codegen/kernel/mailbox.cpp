// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernel/mailbox.h"

#include "planner/cost/peer_exchange.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

static_assert(kPeerParts == planner::kPeerSignalParts);
static_assert(kMailReleaseFrom == planner::kMostPeerDevices &&
              kMailReleaseFrom + planner::kMostPeerDevices == kMailWhomMask + 1);

int64_t peer_tag(bool is_prefill, planner::StepId step) {
    CLEAVE_CHECK(step.index() < kMailMeeting)
        << "step " << step.index() << " of a phase with exchanges by peer memory";
    return static_cast<int64_t>(step.index()) + (is_prefill ? kMailPrefill : 0);
}

std::optional<MissedWait> missed_wait(uint32_t lost) {
    if (lost == 0) return std::nullopt;
    const uint32_t tag = lost & kMailTagMask, whom = lost >> kMailWhomShift & kMailWhomMask;
    if (tag == kMailMeeting) return MissedWait{.is_meeting = true, .whom = whom};
    const bool unreleased = whom >= kMailReleaseFrom;
    return MissedWait{.is_prefill = tag >= kMailPrefill,
                      .step = planner::StepId(static_cast<size_t>(tag % kMailPrefill)),
                      .is_unreleased = unreleased,
                      .whom = unreleased ? whom - kMailReleaseFrom : whom};
}

}  // namespace cleave::codegen
