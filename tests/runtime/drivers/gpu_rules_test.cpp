// SPDX-License-Identifier: Apache-2.0
// What the vendors' documents let a driver refuse, on fakes that refuse it: what the user is told,
// and what is done instead.
#include <numeric>
#include <thread>

#include "planner/machine/build_machine.h"
#include "runtime/cards/cards.h"
#include "runtime/drivers/gpu/stream_points.h"
#include "tests/runtime/support/support.h"
#include "tests/support/failures.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using cleave::test::failure_of;
using cleave::test::fake_kernel;
using cleave::test::FakeGpu;
using cleave::test::open_card;
using planner::DeviceKind;

namespace {

constexpr DeviceKind kBoth[] = {DeviceKind::kCuda, DeviceKind::kHip};

}  // namespace

TEST_CASE("a code object that the driver cannot read is told with its compiler and both versions",
          "[runtime]") {
    for (DeviceKind kind : kBoth) {
        const FakeGpu fake(kind);
        const bool cuda = kind == DeviceKind::kCuda;
        if (cuda) fake.version(12040);
        auto device = open_card(fake, kind);
        std::vector<codegen::CompiledKernel> kernels = fake_kernel("nothing");
        kernels[0].compiler = "NVRTC 13.0 (libnvrtc.so.13), sm_90a";
        // Of another architecture, of a newer compiler; CUDA has a third for the text of PTX.
        for (int code : {200, 209, 222}) {
            if (code == 222 && !cuda) continue;
            fake.fail(cuda ? "cuModuleLoadData" : "hipModuleLoadData", 1, code);
            const std::string error = failure_of<DeviceError>([&] { device->load(kernels); });
            INFO(error);
            CHECK_THAT(error, Contains("ModuleLoadData failed on") &&
                                  Contains("loading kernel nothing") &&
                                  Contains("compiled by NVRTC 13.0 (libnvrtc.so.13), sm_90a") &&
                                  Contains(cuda ? "is of version 12.4" : "is of version 6.2") &&
                                  Contains("$nvrtc PATH"));
        }
        // Any other failure is told as it is, and the next kernels load.
        fake.fail(cuda ? "cuModuleLoadData" : "hipModuleLoadData", 1, 2);
        CHECK_THAT(failure_of<DeviceError>([&] { device->load(kernels); }),
                   Contains("loading kernel nothing") && !Contains("compiled by"));
        CHECK_NOTHROW(device->load(kernels));
        device.reset();
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("shared memory that a driver does not allow a kernel is told before its first launch",
          "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    auto device = open_card(fake, DeviceKind::kCuda);
    device->load(fake_kernel("nothing"));
    codegen::Launch launch;
    launch.block = {32, 2, 1};
    launch.shared_bytes = 60 * 1024;
    CHECK_NOTHROW(device->expect_launch(0, launch));
    launch.shared_bytes = 300 * 1024;  // a card has 227 KiB
    CHECK_THAT(failure_of<DeviceError>([&] { device->expect_launch(0, launch); }),
               Contains("loading kernel nothing") && Contains("cuFuncSetAttribute") &&
                   Contains("32 x 2 x 1 threads with 307200 bytes of shared memory"));
    CHECK(fake.calls("cuLaunchKernel") == 0);
    device.reset();
    CHECK(fake.alive() == 0);
}

TEST_CASE("a card that takes no context is told with its compute mode", "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    const auto refusal = [&](int mode) {
        fake.compute_mode(mode);
        return failure_of<DeviceError>([&] { open_card(fake, DeviceKind::kCuda); });
    };
    CHECK_THAT(refusal(2), StartsWith("cuDevicePrimaryCtxRetain failed on cuda[0]") &&
                               Contains("Prohibited") && Contains("nvidia-smi -c DEFAULT"));
    CHECK_THAT(refusal(3), Contains("CUDA_ERROR_DEVICE_UNAVAILABLE") &&
                               Contains("Exclusive_Process") && Contains("another process"));
    CHECK(refusal(0) == "");
    CHECK(fake.alive() == 0);
    // Where the mode is not the reason, none is given.
    fake.fail("cuDevicePrimaryCtxRetain", 1, 2);
    CHECK_THAT(refusal(0), Contains("OUT_OF_MEMORY") && !Contains("mode"));
}

TEST_CASE("a part of a card is called by its own identity", "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    const std::string whole = fake.driver()->facts(0).uuid;
    fake.in_parts();
    const std::string part = fake.driver()->facts(0).uuid;
    CHECK_THAT(whole, StartsWith("GPU-"));
    CHECK(part == "MIG-" + whole.substr(4));
}

TEST_CASE("cards that no name tells apart stay those of their places in the list", "[runtime]") {
    const cleave::test::Environment none("CLEAVE_ROCM_SMI_LIBRARY", "librocm_none.so");
    const cleave::test::InstalledFake fake(DeviceKind::kHip);
    const auto chosen = [&] {
        const planner::Machine machine = cleave::test::machine_at_hand("hip[1],hip[0]");
        std::vector<int> cards;
        for (const planner::DeviceInfo& device : machine.devices)
            cards.push_back(find_card(fake.drivers(), device, machine.devices));
        return std::pair(cards, machine.devices[0].identity);
    };
    const std::vector<int> order{1, 0};
    CHECK(chosen() == std::pair(order, std::string("GPU-bbbbbbbbbbbbbbbb")));
    fake.nameless();
    CHECK(fake.driver()->facts(1).uuid.empty());
    CHECK(chosen() == std::pair(order, std::string("0000:c6:00.0")));
    fake.alike();  // parts of a card may have one place, and one UUID
    CHECK(chosen() == std::pair(order, std::string()));
}

TEST_CASE("AMD's memory is plain memory unless pools are asked for", "[runtime]") {
    const FakeGpu fake(DeviceKind::kHip);
    auto device = open_card(fake, DeviceKind::kHip);
    // ROCm's pools say that nothing is left where there is (github.com/ROCm/hip/issues/3775).
    fake.fail("hipMallocFromPoolAsync", 1, 2);
    CHECK(failure_of<DeviceError>([&] { device->allocate(1000, "weights"); }) == "");
    CHECK(fake.calls("hipMalloc") == 1);
    CHECK(fake.calls("hipMemPoolCreate") == 0);
    device.reset();
    CHECK(fake.alive() == 0);
    const cleave::test::Environment wrong("CLEAVE_HIP_POOLS", "yes");
    CHECK_THAT(cleave::test::user_error([&] { fake.driver(); }), Contains("CLEAVE_HIP_POOLS=yes"));
}

TEST_CASE("the rate of AMD's memory counts the transfers of a clock by the memory's kind",
          "[runtime]") {
    const FakeGpu fake(DeviceKind::kHip);
    constexpr int64_t kClock = 1'600'000'000, kBytes = 4096 / 8;
    CHECK(fake.driver()->facts(0).memory_bandwidth == 2 * kClock * kBytes);  // HBM2e: gfx90a
    CHECK(fake.driver()->facts(2).memory_bandwidth == 4 * kClock * kBytes);  // HBM3: gfx942
    fake.graphics();
    CHECK(fake.driver()->facts(0).memory_bandwidth == 16 * kClock * kBytes);  // GDDR6: gfx1100
}

TEST_CASE("GPUs that there are no kernels for are left out of those at hand, and said to be",
          "[runtime]") {
    const cleave::test::InstalledFake fake(DeviceKind::kHip);
    CHECK(found_gpus(fake.drivers()).list == "hip[0,1,2]");
    CHECK(found_gpus(fake.drivers()).left_out == "");
    fake.integrated();
    const FoundGpus found = found_gpus(fake.drivers());
    CHECK(found.list == "hip[0,1]");
    CHECK_THAT(found.left_out, Contains("hip[2] (AMD Instinct MI300X") &&
                                   Contains("of architecture gfx1103") && Contains("gfx1100"));
    // One that is asked for by name is refused with the reason.
    CHECK_THAT(cleave::test::user_error([] { cleave::test::machine_at_hand("hip[2]"); }),
               Contains("gfx1103, for which there are no kernels"));
}

TEST_CASE("a kernel's patience is measured by the clock that the card has", "[runtime]") {
    constexpr int64_t kSecond = 1'000'000'000;
    const FakeGpu fake(DeviceKind::kHip);
    CHECK(open_card(fake, DeviceKind::kHip)->kernel_nanoseconds(54 * kSecond) == 54 * kSecond);
    fake.timer(25'000);  // gfx906, gfx908: a quarter of what kernels take it for
    CHECK(open_card(fake, DeviceKind::kHip)->kernel_nanoseconds(54 * kSecond) == 54 * kSecond / 4);
    fake.timer(0);  // a version that does not tell
    CHECK(open_card(fake, DeviceKind::kHip)->kernel_nanoseconds(kSecond) == kSecond);
    const FakeGpu other(DeviceKind::kCuda);  // whose kernels read nanoseconds
    CHECK(open_card(other, DeviceKind::kCuda)->kernel_nanoseconds(kSecond) == kSecond);
}

TEST_CASE("a rectangle moves within a card whose driver refuses its pitches", "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    for (int card : {0, 2}) {
        INFO(card);
        auto device = open_card(fake, DeviceKind::kCuda, card);
        const int before = fake.calls("cuMemcpyDtoDAsync_v2");
        const DeviceAddress from = device->allocate(4096, "from"),
                            to = device->allocate(4096, "to");
        std::vector<uint8_t> block(4096);
        std::iota(block.begin(), block.end(), uint8_t{0});
        device->upload(from, std::as_bytes(std::span(block)));
        device->fill(to, 4096, 0xee);
        const auto moved = [&](const Rectangle& r) {
            device->stream()->copy_within(from, to, r);
            std::vector<uint8_t> got(4096);
            device->download(to, std::as_writable_bytes(std::span(got)));
            int64_t wrong = 0;
            for (int64_t row = 0; row < r.rows; ++row)
                for (int64_t i = 0; i < r.row_bytes; ++i)
                    wrong += got[static_cast<size_t>(row * r.destination_stride + i)] !=
                             block[static_cast<size_t>(row * r.source_stride + i)];
            if (r.destination_stride > r.row_bytes)
                wrong += got[static_cast<size_t>(r.row_bytes)] != 0xee;
            return wrong;
        };
        CHECK(moved({3, 5, 7, 11}) == 0);
        CHECK(fake.calls("cuMemcpyDtoDAsync_v2") - before == (card == 2 ? 3 : 0));
        device->fill(to, 4096, 0xee);
        CHECK(moved({3, 500, 512, 1024}) == 0);
        CHECK(moved({1, 4096, 4096, 4096}) == 0);
        // What fails otherwise stays an error.
        fake.fail("cuMemcpy2DAsync_v2", 1, 700);
        CHECK_THAT(failure_of<DeviceError>([&] { moved({3, 5, 7, 11}); }),
                   Contains("cuMemcpy2DAsync_v2"));
    }
    CHECK(fake.alive() == 0);
}

TEST_CASE("cards that do not reach each other are given no access", "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    const auto driver = fake.driver();
    std::vector<std::unique_ptr<Device>> devices;
    for (int card : {0, 2}) {
        planner::DeviceInfo info = runtime::test::host_info(card, 1 << 24);
        info.kind = DeviceKind::kCuda;
        devices.push_back(make_gpu_device(driver, card, info, {}));
    }
    CHECK_FALSE(devices[0]->supports_peer_copy(*devices[1]));
    CHECK_THAT(failure_of<DeviceError>([&] { devices[0]->enable_peer_access(*devices[1]); }),
               Contains("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"));
}

TEST_CASE("no point of a stream is asked about while it is captured", "[runtime]") {
    for (DeviceKind kind : kBoth) {
        const FakeGpu fake(kind);
        auto device = open_card(fake, kind);
        DeviceStream& stream = *device->stream();
        const DeviceAddress words = device->allocate(64, "words");
        stream.place_fence(0);
        stream.begin_capture();
        device->fill(words, 64, 1);
        CHECK_THAT(failure_of<DeviceError>([&] { stream.await_fence(0); }),
                   Contains("EventQuery") && (Contains("StreamCaptureUnsupported") ||
                                              Contains("STREAM_CAPTURE_UNSUPPORTED")));
        CHECK_THAT(failure_of<DeviceError>([&] { stream.end_capture(); }), Contains("EndCapture"));
        stream.await_fence(0);
    }
}

TEST_CASE("a kernel asks for as much shared memory as its own card has", "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    codegen::Launch launch;
    launch.shared_bytes = 200 * 1024;
    for (int card : {0, 2}) {
        auto device = open_card(fake, DeviceKind::kCuda, card);
        device->load(fake_kernel("nothing"));
        const std::string error =
            failure_of<DeviceError>([&] { device->launch(0, {}, {1, 1, 1}, launch); });
        CHECK((error.find("cuFuncSetAttribute") != std::string::npos) == (card == 2));
    }
}

TEST_CASE("behind a point that a wait saw passed, what was asked for before it is known to be done",
          "[runtime]") {
    for (DeviceKind kind : kBoth) {
        const FakeGpu fake(kind);
        auto device = open_card(fake, kind);
        DeviceStream& stream = *device->stream();
        const DeviceAddress words = device->allocate(64, "words");
        CHECK(stream.points() == 0);
        for (uint64_t round = 0; round < 3; ++round) {
            stream.place_fence(0);
            device->fill(words, 64, 1);
            stream.place_fence(1);
            CHECK(stream.points() == 2 * round + 2);
            CHECK(stream.passed_points() == 2 * round);
            stream.await_fence(1);
            CHECK(stream.passed_points() == 2 * round + 2);
            stream.await_fence(0);  // the earlier one says nothing more
            CHECK(stream.passed_points() == 2 * round + 2);
        }
        // So does the end of a copy that the host waits for.
        std::vector<std::byte> out(64);
        device->download(words, out);
        CHECK(stream.passed_points() == stream.points());
        CHECK(stream.points() == 7);
    }
}

TEST_CASE("what would wait for ever for a card that another stream holds is counted, and goes on",
          "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    fake.live();
    fake.one_at_a_time();
    fake.load_beside_work();
    auto holder = open_card(fake, DeviceKind::kCuda), other = open_card(fake, DeviceKind::kCuda);
    holder->load(fake_kernel("nothing"));
    other->load(fake_kernel("nothing"));
    fake.hang("nothing", 1);
    holder->launch(0, {}, {1, 1, 1}, {});
    while (fake.calls("hangs") == 0) std::this_thread::yield();
    CHECK(fake.calls("waits for ever") == 0);
    // A real driver gives a kernel back only when all that runs on the card has ended.
    other->fill(other->allocate(64, "words"), 64, 1);
    other->load(fake_kernel("nothing"));
    CHECK(fake.calls("waits for ever") == 1);
    fake.release();
    other->synchronize();
    holder->synchronize();
    holder.reset();
    other.reset();
    CHECK(fake.alive() == 0);
}

TEST_CASE("never are more operations of a stream under way than a driver takes, whatever they are",
          "[runtime]") {
    struct Ended {};
    for (DeviceKind kind : {DeviceKind::kCuda, DeviceKind::kHip}) {
        for (int what = 0; what < 5; ++what) {
            const FakeGpu fake(kind);
            fake.live();
            fake.room(static_cast<int>(StreamPoints::kMostPending));
            auto device = open_card(fake, kind);
            DeviceStream& stream = *device->stream();
            const DeviceAddress words = device->allocate(128, "words");
            device->load(fake_kernel("nothing"));
            const std::span<std::byte> pinned = stream.pinned_memory(64);
            stream.mark();
            device->synchronize();
            fake.hang("nothing", 1);
            device->launch(0, {}, {1, 1, 1}, {});
            while (fake.calls("hangs") == 0) std::this_thread::yield();
            stream.set_wait_check([] { throw Ended(); });
            int asked = 0;
            const auto ask = [&] {
                for (; asked < 2000; ++asked) {
                    if (what == 0) device->launch(0, {}, {1, 1, 1}, {});
                    if (what == 1) device->fill(words, 64, 1);
                    if (what == 2) device->copy_in(pinned.data(), words, {1, 64, 64, 64});
                    if (what == 3) stream.copy_within(words, words + 64, {1, 64, 64, 64});
                    if (what == 4) stream.mark();
                }
            };
            INFO(what);
            CHECK_THROWS_AS(ask(), Ended);
            CHECK(asked >= 120);  // the card has enough to do meanwhile
            CHECK(fake.calls("waits for ever") == 0);
            fake.release();
            stream.set_wait_check(nullptr);
            device->synchronize();
        }
    }
}
