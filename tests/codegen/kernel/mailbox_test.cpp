// SPDX-License-Identifier: Apache-2.0
// The word that a kernel leaves in its mailbox names the step and whom it waited for.
#include "codegen/kernel/mailbox.h"

#include "runtime/base/errors.h"
#include "tests/support/test.h"

namespace cleave::codegen {

namespace {

// As codegen/templates/gpu/peer.cuh writes it.
uint32_t word(uint32_t whom, int64_t tag) {
    return kMailMark | whom << kMailWhomShift | static_cast<uint32_t>(tag);
}

}  // namespace

TEST_CASE("a kernel's word in the mailbox reads back as the step, its phase and whom it lacked",
          "[codegen]") {
    CHECK_FALSE(missed_wait(0));
    for (bool is_prefill : {false, true})
        for (size_t step : {size_t{0}, size_t{1}, size_t{12345}, size_t{kMailMeeting} - 1})
            for (uint32_t whom : {0u, 5u, 63u, 64u, 127u}) {
                const auto missed =
                    missed_wait(word(whom, peer_tag(is_prefill, planner::StepId(step))));
                REQUIRE(missed);
                CHECK_FALSE(missed->is_meeting);
                CHECK(missed->is_prefill == is_prefill);
                CHECK(missed->step == planner::StepId(step));
                CHECK(missed->is_unreleased == (whom >= 64));
                CHECK(missed->whom == whom % 64);
            }
    const auto meeting = missed_wait(word(7, kMailMeeting));
    REQUIRE(meeting);
    CHECK(meeting->is_meeting);
    CHECK(meeting->whom == 7);
    CHECK_THROWS_AS(peer_tag(true, planner::StepId(size_t{kMailMeeting})), InternalError);
}

}  // namespace cleave::codegen
