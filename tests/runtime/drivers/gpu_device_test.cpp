// SPDX-License-Identifier: Apache-2.0
// The CUDA and HIP drivers on recording fakes of the vendors' libraries: what they call, in which
// order, what they give back, and what becomes of every error. The same tests for both.
#include <numeric>

#include "runtime/drivers/gpu/gpu_device.h"
#include "tests/runtime/drivers/vendor_calls.h"
#include "tests/support/failures.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;
using cleave::test::failure_of;
using cleave::test::fake_card;
using cleave::test::fake_kernel;
using cleave::test::FakeGpu;
using planner::DeviceKind;
using runtime::test::kVendors;
using runtime::test::Vendor;

namespace {

// Uses everything a Device has, once.
void use_all(Device& device) {
    const DeviceAddress a = device.allocate(64, "words");
    device.fill(a, 64, 0);
    device.load(fake_kernel("add_words"));
    codegen::Launch launch;
    launch.block = {32, 1, 1};
    launch.shared_bytes = 60 * 1024;
    const uint64_t args[] = {a, 5, 8};
    device.launch(0, args, {2, 1, 1}, launch);
    std::vector<float> terms(16, 1.0f);
    const std::byte* sources[] = {reinterpret_cast<const std::byte*>(terms.data())};
    device.reduce(sources, a, a, 16, DType::kF32, [](int64_t) {});
    std::vector<std::byte> out(64);
    device.download(a, out);
    DeviceStream& stream = *device.stream();
    stream.begin_capture();
    device.launch(0, args, {2, 1, 1}, launch);
    const int capture = stream.end_capture();
    stream.mark();
    stream.replay(capture);
    stream.mark();
    CHECK(stream.take_marks().size() == 2);
    stream.place_fence(1);
    stream.await_fence(1);
    device.free(a);
}

}  // namespace

TEST_CASE("a launch has its arguments as words, its shape and its shared memory", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        auto device = make_gpu_device(fake.driver(), 0, fake_card(vendor.kind), {});
        const DeviceAddress a = device->allocate(80, "words");
        std::vector<uint64_t> words(10);
        std::iota(words.begin(), words.end(), uint64_t{100});
        device->upload(a, std::as_bytes(std::span(words)));
        device->load(fake_kernel("add_words"));
        codegen::Launch launch;
        launch.block = {64, 2, 1};
        launch.shared_bytes = 60 * 1024;
        uint64_t args[] = {a + 8, uint64_t{1} << 40, 3};
        device->launch(0, args, {7, 1, 1}, launch);
        args[1] = 0;  // they were read by then
        device->launch(0, args, {0, 1, 1}, launch);
        std::vector<uint64_t> got(10);
        device->download(a, std::as_writable_bytes(std::span(got)));
        for (size_t i = 1; i < 4; ++i) words[i] += uint64_t{1} << 40;
        CHECK(got == words);
        CHECK(fake.calls(vendor.launch) == 1);
        if (vendor.kind == DeviceKind::kCuda)
            CHECK_THAT(fake.log(), Contains("cuFuncSetAttribute 61440"));
    }
}

TEST_CASE("a grid is held against the card's own limits, axis by axis", "[runtime]") {
    const FakeGpu cuda(DeviceKind::kCuda), hip(DeviceKind::kHip);
    CHECK(cuda.driver()->facts(0).limits.max_grid ==
          std::array<int64_t, 3>{2'147'483'647, 65'535, 65'535});
    // Fewer than 2^32 threads, in blocks of 1024.
    CHECK(hip.driver()->facts(0).limits.max_grid ==
          std::array<int64_t, 3>{4'194'303, 65'536, 65'536});
    for (const Vendor& vendor : kVendors) {
        const FakeGpu& fake = vendor.kind == DeviceKind::kCuda ? cuda : hip;
        planner::DeviceInfo info = fake_card(vendor.kind);
        info.limits.max_grid = {1000, 70, 8};
        auto device = make_gpu_device(fake.driver(), 0, info, {});
        device->load(fake_kernel("nothing"));
        device->launch(0, {}, {1000, 70, 8}, {});
        for (const std::array<int64_t, 3>& grid :
             {std::array<int64_t, 3>{1001, 1, 1}, {1, 71, 1}, {1, 1, 9}, {-1, 1, 1}})
            CHECK_THAT(failure_of([&] { device->launch(0, {}, grid, {}); }),
                       Contains(info.name + ", which takes"));
        CHECK(fake.calls(vendor.launch) == 1);
    }
}

TEST_CASE("what was captured is done at each replay, with the arguments that it had", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        auto device = make_gpu_device(fake.driver(), 0, fake_card(vendor.kind), {});
        DeviceStream& stream = *device->stream();
        const DeviceAddress a = device->allocate(80, "words");
        device->fill(a, 80, 0);
        device->load(fake_kernel("add_words"));
        uint64_t args[] = {a, 3, 10};
        device->launch(0, args, {1, 1, 1}, {});
        stream.begin_capture();
        device->launch(0, args, {1, 1, 1}, {});
        args[1] = 100;
        device->launch(0, args, {1, 1, 1}, {});
        const int capture = stream.end_capture();
        args[1] = 1000;
        for (int i = 0; i < 3; ++i) stream.replay(capture);
        std::vector<uint64_t> got(10);
        device->download(a, std::as_writable_bytes(std::span(got)));
        CHECK(got == std::vector<uint64_t>(10, 3 + 3 * 103));
        // A wait or an allocation has no place in a capture: the driver ends it, but of a pool it
        // would capture that.
        stream.begin_capture();
        CHECK_THROWS_AS(device->allocate(64, "more"), InternalError);
        CHECK_THROWS_AS(device->synchronize(), VendorError);
        CHECK_THROWS_AS(stream.end_capture(), VendorError);
        stream.begin_capture();
        CHECK_THROWS_AS(device->synchronize(), VendorError);
        stream.abandon_capture();
        device->synchronize();
        device.reset();
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("large uploads and downloads go through few pinned blocks, small ones share one",
          "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        fake.live();
        auto device = make_gpu_device(fake.driver(), 0, fake_card(vendor.kind, 0, 1 << 26), {});
        const int64_t bytes = (int64_t{20} << 20) + 12;
        const DeviceAddress a = device->allocate(bytes, "much");
        std::vector<uint32_t> sent(static_cast<size_t>(bytes) / 4), got(sent.size());
        std::iota(sent.begin(), sent.end(), 7u);
        for (uint32_t i = 0; i < 500; ++i) {
            device->upload(a + 4 * i, std::as_bytes(std::span(&sent[i], 1)));
        }
        CHECK(fake.calls(vendor.pinned) <= 2);
        device->upload(a + 2000, std::as_bytes(std::span(sent)).subspan(2000));
        device->download(a, std::as_writable_bytes(std::span(got)));
        CHECK(got == sent);
        CHECK(fake.calls("pageable copy") == 0);
        CHECK(fake.calls(vendor.pinned) <= 6);
        device.reset();
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("memory that is not pinned is copied by blocks that were there before, row by row",
          "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        const FakeGpu fake(vendor.kind);
        fake.live();
        auto device = make_gpu_device(fake.driver(), 0, fake_card(vendor.kind), {});
        device->load(fake_kernel("nothing"));
        const DeviceAddress a = device->allocate(6 << 20, "much");
        const int blocks = fake.calls(vendor.pinned);
        // Rows apart on both sides, rows larger than a piece, many small ones.
        for (const Rectangle& r : {Rectangle{3, 1000, 1500, 2000},
                                   {2, (2 << 20) + 99, (2 << 20) + 700, (2 << 20) + 99},
                                   {4000, 700, 700, 900},
                                   {1, 5, 5, 5}}) {
            INFO(vendor.list << ", rows of " << r.row_bytes);
            std::vector<std::byte> sent(static_cast<size_t>(r.rows * r.source_stride));
            for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 % 251);
            std::vector<std::byte> got(sent.size(), std::byte{255});
            device->copy_in(sent.data(), a, r);
            device->copy_out(a, got.data(),
                             {r.rows, r.row_bytes, r.destination_stride, r.source_stride});
            device->synchronize();
            for (int64_t row = 0; row < r.rows; ++row) {
                const auto begin = row * r.source_stride, end = begin + r.row_bytes;
                REQUIRE(std::equal(sent.begin() + begin, sent.begin() + end, got.begin() + begin));
                // What lies between rows stays as it was.
                REQUIRE((r.row_bytes == r.source_stride ||
                         got[static_cast<size_t>(end)] == std::byte{255}));
            }
        }
        CHECK(fake.calls("pageable copy") == 0);
        CHECK(fake.calls(vendor.pinned) == blocks);
        device.reset();
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("a GPU's device gives back all that it took", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        {
            auto device =
                make_gpu_device(fake.driver(), 1, fake_card(vendor.kind), {.poison = true});
            use_all(*device);
            device->allocate(1000, "kept to the end");
            CHECK(fake.alive() > 0);
        }
        INFO(fake.log());
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("each driver call that fails is named with its error and device, and nothing leaks",
          "[runtime]") {
    const cleave::test::Environment pools("CLEAVE_HIP_POOLS", "1");
    for (const Vendor& vendor : kVendors) {
        for (const char* call :
             {vendor.allocate, vendor.pool, vendor.pinned, vendor.fill, vendor.copy, vendor.stream,
              vendor.wait, vendor.load, vendor.find, vendor.launch, vendor.free}) {
            INFO(call);
            const FakeGpu fake(vendor.kind);
            fake.fail(call, 1, 700);
            const std::string error = failure_of([&] {
                auto device = make_gpu_device(fake.driver(), 0, fake_card(vendor.kind), {});
                use_all(*device);
            });
            CHECK_THAT(error, Contains(call) && Contains(fake_card(vendor.kind).name));
            if (vendor.kind == DeviceKind::kCuda)
                CHECK_THAT(error, Contains("CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access "
                                           "was encountered)"));
            CHECK(fake.alive() == 0);
        }
    }
}

TEST_CASE("a device's memory is a pool of its own, which goes with it, where the card has pools",
          "[runtime]") {
    const cleave::test::Environment pools("CLEAVE_HIP_POOLS", "1");
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        const auto driver = fake.driver();
        auto first = make_gpu_device(driver, 0, fake_card(vendor.kind), {});
        auto second = make_gpu_device(driver, 1, fake_card(vendor.kind), {});
        CHECK(fake.calls(vendor.pool) == 0);  // a device that is only asked has none
        const DeviceAddress a = first->allocate(1000, "weights");
        first->allocate(2000, "activations");
        CHECK(fake.calls(vendor.pool) == 1);
        CHECK(fake.calls(vendor.allocate) == 2);
        CHECK(fake.calls(vendor.plain) == 0);
        CHECK(first->allocated_bytes() == 3000);
        first->free(a);
        // Kernels of a peer reach it; that is the pool's to say.
        const std::string open =
            vendor.kind == DeviceKind::kCuda ? "cuMemPoolSetAccess" : "hipMemPoolSetAccess";
        second->enable_peer_access(*first);
        CHECK(fake.calls(open) == 1);
        CHECK_THAT(fake.log(), Contains(open + " 1"));
        fake.fail(open, 1, 1);
        CHECK_THAT(failure_of([&] { first->enable_peer_access(*second); }), Contains(open));
        first.reset();
        second.reset();
        CHECK(fake.calls(vendor.destroy) == 2);
        CHECK(fake.alive() == 0);
        // The third card has none.
        auto third = make_gpu_device(driver, 2, fake_card(vendor.kind), {});
        third->allocate(1000, "weights");
        CHECK(fake.calls(vendor.pool) == 2);
        CHECK(fake.calls(vendor.plain) == 1);
        fake.fail(vendor.plain, 1, 700);
        CHECK_THAT(failure_of([&] { third->allocate(1000, "more"); }), Contains(vendor.plain));
        third.reset();
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("after a kernel's fault every call fails, and the device still goes", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        auto device = make_gpu_device(fake.driver(), 0, fake_card(vendor.kind), {});
        const DeviceAddress a = device->allocate(64, "words");
        device->load(fake_kernel("nothing"));
        device->launch(0, {}, {1, 1, 1}, {});
        fake.break_down(700);
        CHECK_THROWS_AS(device->synchronize(), DeviceError);
        CHECK_THROWS_AS(device->fill(a, 64, 0), DeviceError);
        device.reset();
        CHECK(fake.calls(vendor.free) > 0);
    }
}

TEST_CASE("peer access is between cards of one driver, once for each pair", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        const auto driver = fake.driver();
        auto first = make_gpu_device(driver, 0, fake_card(vendor.kind), {});
        auto logical = make_gpu_device(driver, 0, fake_card(vendor.kind), {});
        auto second = make_gpu_device(driver, 1, fake_card(vendor.kind), {});
        const char* call = vendor.kind == DeviceKind::kCuda ? "cuCtxEnablePeerAccess"
                                                            : "hipDeviceEnablePeerAccess";
        CHECK(first->supports_peer_copy(*logical));
        first->enable_peer_access(*logical);
        CHECK(fake.calls(call) == 0);  // one card, one memory
        CHECK(first->supports_peer_copy(*second));
        first->enable_peer_access(*second);
        first->enable_peer_access(*second);
        second->enable_peer_access(*logical);
        CHECK_THAT(fake.log(),
                   Contains(std::string(call) + " 0 1") && Contains(std::string(call) + " 1 0"));
        fake.fail(call, 1, 217);
        CHECK_THAT(failure_of([&] { first->enable_peer_access(*second); }), Contains(call));
        if (vendor.kind == DeviceKind::kCuda) {
            auto third = make_gpu_device(driver, 2, fake_card(vendor.kind), {});
            CHECK_THAT(first->supports_peer_copy(*third).reason, Contains("no access"));
        }
        const FakeGpu stranger(vendor.kind == DeviceKind::kCuda ? DeviceKind::kHip
                                                                : DeviceKind::kCuda);
        auto other = make_gpu_device(stranger.driver(), 0, fake_card(vendor.kind), {});
        CHECK_THAT(first->supports_peer_copy(*other).reason, Contains("different drivers"));
        CHECK_THROWS_AS(first->enable_peer_access(*other), InternalError);
        // Signals of peers lie in memory of the device, answers to the host in the host's.
        const DeviceAddress signals = first->allocate_exchange(4096, "signals");
        CHECK(first->allocated_bytes() == 4096);
        first->free(signals);
        REQUIRE(first->mailbox().size() == static_cast<size_t>(Device::kMailboxBytes));
        CHECK(first->mailbox()[17] == std::byte{0});
        CHECK(first->mailbox().data() == first->mailbox().data());
    }
}

TEST_CASE("out of memory has the plan's numbers and the driver's", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        auto device =
            make_gpu_device(fake.driver(), 0, fake_card(vendor.kind, 0, int64_t{60} << 30), {});
        fake.take(int64_t{63} << 30);
        const std::string error =
            failure_of([&] { device->allocate(int64_t{20} << 30, "the weights arena"); });
        CHECK_THAT(error, Contains("the weights arena") && Contains("21474836480") &&
                              Contains("64424509440") && Contains("bytes free"));
        CHECK(device->allocated_bytes() == 0);
    }
}
