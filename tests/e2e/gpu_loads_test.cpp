// SPDX-License-Identifier: Apache-2.0
// Kernels that a driver refuses, of both vendors: told before anything travels.
#include "tests/e2e/support.h"
#include "tests/runtime/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;
using runtime::test::InstalledFake;

namespace {

struct Vendor {
    DeviceKind kind;
    const char* card;
    const char *load, *find, *attribute;
};
constexpr Vendor kVendors[] = {
    {DeviceKind::kCuda, "cuda[0]", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute"},
    {DeviceKind::kHip, "hip[0]", "hipModuleLoadData", "hipModuleGetFunction",
     "hipFuncGetAttribute"}};

// What a session says before its first pass.
std::string refusal(const Vendor& vendor) {
    const importer::Graph graph = random_model(small_shape(), 1);
    const planner::Plan plan =
        plan_for(graph, {"one", vendor.card, 1, 1}, all_logits_workload(1, 32, 32));
    return failure_of<DeviceError>([&] { Session(plan, options_for_fakes()); });
}

}  // namespace

TEST_CASE("a driver that refuses a kernel is heard before any byte of the weights travels",
          "[e2e]") {
    constexpr int kOutOfMemory = 2, kNoBinary = 209;
    for (const Vendor& vendor : kVendors) {
        for (const auto& [call, code] :
             {std::pair{vendor.load, kNoBinary}, std::pair{vendor.load, kOutOfMemory},
              std::pair{vendor.find, kOutOfMemory}, std::pair{vendor.attribute, kOutOfMemory}}) {
            for (int nth : {1, 2}) {
                const InstalledFake fake(vendor.kind);
                fake.live();
                fake.fail(call, nth, code);
                const std::string error = refusal(vendor);
                INFO(call << " " << nth << ": " << error);
                CHECK_THAT(error,
                           Contains("loading kernel ") && Contains(call) && Contains(vendor.card));
                CHECK(fake.calls(call) == nth);
                CHECK(fake.calls("bytes in") == 0);
                CHECK(fake.alive() == 0);
            }
        }
    }
}

TEST_CASE("a kernel that the driver starts with fewer threads than it is launched with is refused",
          "[e2e]") {
    for (const Vendor& vendor : kVendors) {
        const InstalledFake fake(vendor.kind);
        fake.live();
        fake.most_threads(32);
        CHECK_THAT(refusal(vendor), Contains("loading kernel ") && Contains(vendor.card) &&
                                        Contains("its blocks have ") &&
                                        Contains("starts it with 32 at most"));
        CHECK(fake.calls("bytes in") == 0);
        CHECK(fake.alive() == 0);
    }
}
