// SPDX-License-Identifier: Apache-2.0
// The cards of a machine as the CUDA and HIP drivers tell them, on recording fakes of the vendors'
// libraries: how they are chosen, what is kept back of them, and what is said of drivers that are
// not there.
#include <filesystem>
#include <tuple>

#include "planner/machine/build_machine.h"
#include "runtime/cards/cards.h"
#include "runtime/drivers/cuda/cuda_driver.h"
#include "runtime/drivers/gpu/gpu_device.h"
#include "tests/runtime/drivers/vendor_calls.h"
#include "tests/support/failures.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using cleave::test::failure_of;
using cleave::test::FakeGpu;
using cleave::test::InstalledFake;
using cleave::test::machine_at_hand;
using planner::DeviceKind;
using runtime::test::kVendors;
using runtime::test::Vendor;

TEST_CASE("cards are chosen by index, UUID and PCI address, in the user's order", "[runtime]") {
    const InstalledFake fake(DeviceKind::kCuda);
    const planner::Machine all = machine_at_hand("cuda[0-2]");
    REQUIRE(all.devices.size() == 3);
    CHECK(all.devices[0].arch == "sm_90a");
    CHECK(all.devices[2].arch == "sm_86");
    CHECK(all.devices[0].identity == "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
    CHECK(all.devices[0].pci == "0000:3b:00.0");
    CHECK(all.devices[0].limits.max_grid[1] == 65'535);
    CHECK(all.devices[0].memory_bandwidth == 3'350'000'000'000);  // the catalogue knows an H100
    CHECK(all.link(planner::DeviceId(0), planner::DeviceId(1))->kind == planner::LinkKind::kNvlink);
    CHECK(all.link(planner::DeviceId(0), planner::DeviceId(2))->kind == planner::LinkKind::kPcie);

    const planner::Machine chosen = machine_at_hand("cuda[GPU-7071],cuda[0000:5e:00.0],cuda[0]");
    std::vector<int> order;
    for (const planner::DeviceInfo& d : chosen.devices) order.push_back(d.index);
    CHECK(order == std::vector<int>{2, 1, 0});

    CHECK_THAT(failure_of([] { machine_at_hand("cuda[3]"); }),
               Contains("cuda[3]: there is no such device") && Contains("0000:86:00.0"));
    CHECK_THAT(failure_of([] { machine_at_hand("cuda[GPU-ffff]"); }), Contains("no such device"));
    CHECK_THAT(failure_of([] { machine_at_hand("cuda[GPU-]"); }),
               Contains("several devices are so called"));
    for (const char* twice : {"cuda[2],cuda[GPU-7071]", "cuda[2],cuda[2]/0-1"})
        CHECK_THAT(failure_of([&] { machine_at_hand(twice); }),
                   Contains("one card") && Contains("cuda[2]"));
    CHECK(fake.alive() == 0);
}

TEST_CASE("logical devices of a card share its memory and its bandwidth", "[runtime]") {
    const InstalledFake fake(DeviceKind::kHip);
    const planner::Machine machine = machine_at_hand("hip[1]/0-3");
    REQUIRE(machine.devices.size() == 4);
    for (const planner::DeviceInfo& d : machine.devices) {
        CHECK(d.memory_bytes == int64_t{16} << 30);
        CHECK(d.index == 1);
        CHECK(d.memory_domain == 0);
        CHECK(d.arch == "gfx90a");
    }
    CHECK(machine.link(planner::DeviceId(0), planner::DeviceId(3))->kind ==
          planner::LinkKind::kSameMemory);
}

TEST_CASE("a plan for other devices is refused with both lists", "[runtime]") {
    const InstalledFake fake(DeviceKind::kCuda);
    planner::Machine machine = machine_at_hand("cuda[0-1]");
    CHECK(find_card(fake.drivers(), machine.devices[1], machine.devices) == 1);
    machine.devices[1].identity = "GPU-99999999-0000-0000-0000-000000000000";
    const std::string error =
        failure_of([&] { find_card(fake.drivers(), machine.devices[1], machine.devices); });
    CHECK_THAT(error, Contains("made for other devices") && Contains("GPU-99999999") &&
                          Contains("GPU-40414243") && Contains("make the plan anew"));
}

TEST_CASE("a device that is not there is told with all that were declared and all cards there are",
          "[runtime]") {
    const InstalledFake fake(DeviceKind::kCuda), other(DeviceKind::kHip);
    // A matcher of several must not outlive its parts.
    const auto check = [](const std::string& error, const std::vector<std::string>& parts) {
        for (const std::string& part : parts) CHECK_THAT(error, Contains(part));
    };
    const std::string cuda_card = "cuda[0] (NVIDIA H100 80GB HBM3, GPU-10111213-";
    for (const char* missing : {"cuda[3]", "cuda[GPU-ffff]", "cuda[0000:99:00.0]", "hip[7]"}) {
        const std::string list = fmt::format("cuda[0],{},host[0]", missing);
        const std::string error = failure_of([&] { machine_at_hand(list); });
        CHECK_THAT(error, StartsWith(missing));
        check(error, {fmt::format("(declared: cuda[0], {}, host[0])", missing), cuda_card,
                      "0000:86:00.0", "hip[2] (AMD Instinct MI300X, GPU-cccc", "0000:c1:00.0",
                      "by index, UUID or PCI address"});
    }
    const cleave::test::Environment shown("CUDA_VISIBLE_DEVICES", "0,1,2");
    check(failure_of([] { machine_at_hand("cuda[3]"); }), {"CUDA_VISIBLE_DEVICES=0,1,2"});
    // A vendor whose library is not there at all.
    const planner::Machine planned = machine_at_hand("cuda[0],hip[1],host[0]");
    const cleave::test::Environment absent("CLEAVE_HIP_LIBRARY", "libnothing-of-the-kind.so");
    const std::string no_hip = "no hip device: not installed (tried libnothing-of-the-kind.so)";
    std::string error = failure_of([] { machine_at_hand("cuda[1],hip[0]"); });
    CHECK_THAT(error, StartsWith("hip[0]"));
    check(error,
          {"(declared: cuda[1], hip[0])", cuda_card, no_hip, "'host' devices", "sim:MODEL[N]"});
    Drivers anew;
    error = failure_of([&] { find_card(anew, planned.devices[1], planned.devices); });
    CHECK_THAT(error, StartsWith("hip[1]"));
    check(error, {"made for other devices", "hip[1] (AMD Instinct MI250X, GPU-bbbb", ", host[0];",
                  cuda_card, no_hip, "make the plan anew"});
    CHECK(fake.alive() + other.alive() == 0);
}

TEST_CASE("every variable that chooses among a vendor's cards is shown", "[runtime]") {
    const InstalledFake cuda(DeviceKind::kCuda), hip(DeviceKind::kHip);
    const cleave::test::Environment nvidia("CUDA_VISIBLE_DEVICES", "0,1,2"),
        low("ROCR_VISIBLE_DEVICES", "2,1,0"), amd("HIP_VISIBLE_DEVICES", "1,2,0");
    CHECK(list_gpus(cuda.drivers(), DeviceKind::kCuda).visible == "CUDA_VISIBLE_DEVICES=0,1,2");
    CHECK_THAT(list_gpus(hip.drivers(), DeviceKind::kHip).visible,
               StartsWith("ROCR_VISIBLE_DEVICES=2,1,0, HIP_VISIBLE_DEVICES=1,2,0, "
                          "CUDA_VISIBLE_DEVICES=0,1,2"));
    const std::string error = failure_of([] { machine_at_hand("hip[3]"); });
    CHECK_THAT(error, Contains("ROCR_VISIBLE_DEVICES=2,1,0 chooses") &&
                          Contains("HIP_VISIBLE_DEVICES=1,2,0 chooses"));
    CHECK(error.find("CUDA_VISIBLE_DEVICES") == error.rfind("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("a card keeps back what is taken of it and what a session takes beside the plan",
          "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        const InstalledFake fake(vendor.kind);
        fake.take(int64_t{3} << 30);
        const planner::Machine machine = machine_at_hand(std::string(vendor.list) + "[0]");
        CHECK(machine.devices[0].reserved_bytes == (int64_t{3} << 30) + (int64_t{256} << 20));
    }
}

TEST_CASE(
    "a card is given queues for many streams before its library starts, unless the user says "
    "how many",
    "[runtime]") {
    for (const auto& [kind, variable, ours] :
         {std::tuple{DeviceKind::kCuda, "CUDA_DEVICE_MAX_CONNECTIONS", "32"},
          {DeviceKind::kHip, "GPU_MAX_HW_QUEUES", "16"}}) {
        const FakeGpu fake(kind);
        const cleave::test::Environment users(variable, "5");
        REQUIRE(fake.driver());
        CHECK(fake.queues() == "5");
        ::unsetenv(variable);
        REQUIRE(fake.driver());
        CHECK(fake.queues() == ours);
    }
}

TEST_CASE("a driver's library stays open until the process ends", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        // A file of its own: other tests have the fake itself open.
        const cleave::test::TemporaryFolder folder;
        const std::string names[] = {(folder.path() / "libdriver.so").string()};
        std::filesystem::copy_file(FakeGpu(vendor.kind).path(), names[0]);
        REQUIRE(cleave::test::entry_of(vendor.kind).open({names, 1}).driver);
        void* still = ::dlopen(names[0].c_str(), RTLD_NOW | RTLD_NOLOAD);
        REQUIRE(still);
        ::dlclose(still);
    }
}

TEST_CASE("a driver without a device, without a symbol or without a file says so", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        const FakeGpu fake(vendor.kind);
        fake.show(0);
        CHECK_THAT(fake.open().reason,
                   Contains("fake") && (Contains("NO_DEVICE") || Contains("NoDevice")));
        const std::string none[] = {"libnothing-of-the-kind.so"};
        const FoundDriver found = cleave::test::entry_of(vendor.kind).open({none, 1});
        CHECK_FALSE(found.driver);
        CHECK_THAT(found.reason, Contains("libnothing-of-the-kind.so"));
    }
    // The other vendor's library has other symbols.
    const std::string wrong[] = {FakeGpu(DeviceKind::kHip).path()};
    CHECK_THAT(open_cuda_driver(wrong).reason, Contains("lacks cuInit"));
}

TEST_CASE("a driver that fails as it is opened says so each time it is asked for", "[runtime]") {
    for (const auto& [kind, call, said] :
         {std::tuple{DeviceKind::kCuda, "cuDeviceGetCount", "cuDeviceGetCount failed"},
          {DeviceKind::kHip, "hipGetDeviceCount", "hipErrorUnknown"}}) {
        const InstalledFake fake(kind);
        fake.fail(call, 1, 999);
        for (int time = 0; time < 2; ++time) {
            const GpuListing listing = list_gpus(fake.drivers(), kind);
            CHECK_THAT(listing.reason, Contains(said));
            CHECK(listing.cards.empty());
        }
    }
}

TEST_CASE("the vendors' real libraries load and find no device where there is none", "[runtime]") {
    Drivers drivers;
    for (const planner::VendorFacts& vendor : planner::vendors()) {
        const FoundDriver& found = drivers.driver(vendor.kind);
        INFO(vendor.kind_name << ": " << found.reason);
        CHECK(found.reason.find("lacks") == std::string::npos);  // every symbol is there
        if (found.driver)
            CHECK(found.driver->count() > 0);
        else  // not installed, or without a card
            CHECK_THAT(found.reason, Contains("cannot open") || Contains("shows no device") ||
                                         Contains("CUDA_ERROR"));
    }
}

// The toolkit's library to link with has every symbol, and nothing behind them.
TEST_CASE("NVIDIA's stub of libcuda has every symbol and says that it is one", "[runtime]") {
    for (const char* path : {"/usr/local/cuda/lib64/stubs/libcuda.so",
                             "/usr/local/cuda-13.0/lib64/stubs/libcuda.so"}) {
        if (!std::filesystem::exists(path)) continue;
        const std::string names[] = {path};
        const FoundDriver found = open_cuda_driver(names);
        CHECK_FALSE(found.driver);
        CHECK_THAT(found.reason, Contains("CUDA_ERROR_STUB_LIBRARY"));
        return;
    }
    CLEAVE_SKIP("this machine has no CUDA toolkit");
}
