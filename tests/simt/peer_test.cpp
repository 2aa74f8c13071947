// SPDX-License-Identifier: Apache-2.0
// Kernels by which devices exchange values over each other's memory: what they refuse, and how they
// end. What they give, in any order of threads: kernel_table_test.cpp; on real GPUs:
// gpu_table_test.cpp.
#include "tests/simt/peer_rig.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;
using namespace cleave::test;
using runtime::DeviceAddress;

TEST_CASE("a sum by peer memory holds in a storm of rounds, and says what it fuses", "[simt]") {
    const Sum s{3, {0, 2}, 600, 10, true, false, DType::kF16, NormBehind{DType::kBF16, 128, 6e-4}};
    PeerRig rig("sm_90a", s.members, {.seed = 7, .activations = s.dtype});
    CHECK(wrong_in_sum(rig, s, 12) == "");
    CHECK(rig.kernels[0][0].fused == std::vector<std::string>{"all_reduce", "add", "rms_norm"});
}

TEST_CASE("the host's word ends the wait for a member that never comes at once", "[simt]") {
    PeerRig rig("sm_80", 3, {});
    CHECK(wrong_in_absence(rig, true) == "");
}

TEST_CASE("an exchange with a device that gave no access is reported with its line", "[simt]") {
    const Sum s{2, {0, 1}, 64, 1, false, false};
    PeerRig rig("gfx90a", 2, {.give_access = false});
    rig.load(std::vector<std::vector<PeerSpec>>(2, {sum_spec(rig, s)}));
    const DeviceAddress x = rig.device(0).allocate(256, "x");
    try {
        rig.run(0, {sum_args(rig, s, 0, x, 0, x), {}}, 1);
        FAIL("no report");
    } catch (const InternalError& error) {
        CHECK_THAT(error.what(), Catch::Matchers::Contains("no peer access") &&
                                     Catch::Matchers::Contains("peer.cuh"));
    }
}
