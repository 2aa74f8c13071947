// SPDX-License-Identifier: Apache-2.0
// Kernels that a driver refuses, of both vendors: an error before anything is copied.
#include <filesystem>

#include "tests/e2e/support.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using namespace cleave::test;
using Catch::Matchers::Contains;
using planner::DeviceKind;

namespace {

struct LoadCalls {
    DeviceKind kind;
    const char* card;
    const char *load, *find, *attribute;
};
constexpr LoadCalls kVendors[] = {
    {DeviceKind::kCuda, "cuda[0]", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute"},
    {DeviceKind::kHip, "hip[0]", "hipModuleLoadData", "hipModuleGetFunction",
     "hipFuncGetAttribute"}};

// The error of a session before its first pass.
std::string refusal(const LoadCalls& vendor) {
    const importer::Graph graph = random_model(small_shape(), 1);
    planner::Plan plan =
        plan_for(graph, {"one", vendor.card, 1, 1}, all_logits_workload(1, 32, 32));
    return failure_of<DeviceError>([&] { Session(plan, options_for_fakes()); });
}

}  // namespace

TEST_CASE("a driver that refuses a kernel is heard before any byte of the weights travels",
          "[e2e]") {
    constexpr int kOutOfMemory = 2, kNoBinary = 209;
    for (const LoadCalls& vendor : kVendors) {
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

TEST_CASE("no session compiles with an NVRTC whose objects its CUDA driver does not load",
          "[e2e]") {
    namespace fs = std::filesystem;
    const InstalledFake fake(DeviceKind::kCuda);
    fake.live();
    fake.version(12040);
    const TemporaryFolder folder;
    fs::copy_file(CLEAVE_FAKE_NVRTC, folder.path() / "libnvrtc.so.13");
    const importer::Graph graph = random_model(small_shape(), 1);
    planner::Plan plan = plan_for(graph, {"one", "cuda[0]", 1, 1}, all_logits_workload(1, 32, 32));
    SessionOptions options;
    options.compile.nvrtc = folder.path();
    options.compile.use_cache = false;
    CHECK_THAT(user_error([&] { Session(plan, options); }),
               Contains("the driver is of CUDA 12.4") && Contains("found NVRTC 13.4"));
    // With one of its own version beside it that one is asked: it says that it compiles nothing.
    fs::copy_file(CLEAVE_FAKE_NVRTC, folder.path() / "libnvrtc.so.12");
    CHECK_THAT(failure_of<InternalError>([&] { Session(plan, options); }),
               Contains("does not compile for NVRTC 12.4 (libnvrtc.so.12), sm_90a") &&
                   Contains("the imitation compiles nothing"));
    CHECK(fake.calls("cuModuleLoadData") == 0);
    CHECK(fake.alive() == 0);
}

TEST_CASE("a kernel that the driver starts with fewer threads than it is launched with is refused",
          "[e2e]") {
    for (const LoadCalls& vendor : kVendors) {
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
