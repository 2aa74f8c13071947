// SPDX-License-Identifier: Apache-2.0
// The CUDA and HIP drivers on recording fakes of the vendors' libraries: what they call, in which order, what they give back,
// and what becomes of every error. The same tests for both.
#include <filesystem>
#include <numeric>
#include <thread>
#include <tuple>

#include "runtime/drivers/gpu_device.h"
#include "runtime/gpu_devices.h"
#include "tests/runtime/fake_gpus.h"
#include "tests/runtime/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using planner::DeviceKind;
using runtime::test::fake_kernel;
using runtime::test::FakeGpu;

namespace {

// What the two vendors call the same thing.
struct Vendor {
    DeviceKind kind;
    const char *list, *init, *allocate, *free, *pinned, *fill, *copy, *stream, *wait, *load, *find,
        *launch, *pool, *plain, *destroy;
};
constexpr Vendor kVendors[] = {
    {DeviceKind::kCuda, "cuda", "cuInit", "cuMemAllocFromPoolAsync", "cuMemFree_v2",
     "cuMemHostAlloc", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2", "cuStreamCreate", "cuStreamQuery",
     "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuMemPoolCreate",
     "cuMemAlloc_v2", "cuMemPoolDestroy"},
    {DeviceKind::kHip, "hip", "hipInit", "hipMallocFromPoolAsync", "hipFree", "hipHostMalloc",
     "hipMemsetAsync", "hipMemcpyAsync", "hipStreamCreateWithFlags", "hipStreamQuery",
     "hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel", "hipMemPoolCreate",
     "hipMalloc", "hipMemPoolDestroy"}};

planner::Device card(const Vendor& vendor, int64_t memory = 1 << 24) {
    planner::Device info = runtime::test::host_info(0, memory);
    info.kind = vendor.kind;
    info.name = std::string(vendor.list) + "[0]";
    return info;
}

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

std::string error_of(const std::function<void()>& act) {
    try {
        act();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

// The usual libraries again when a test is over.
struct Installed {
    explicit Installed(const FakeGpu& fake, DeviceKind kind) : kind_(kind) {
        use_gpu_library(kind, fake.path());
    }
    ~Installed() { use_gpu_library(kind_, ""); }
    DeviceKind kind_;
};

planner::Machine machine_of(const std::string& list) {
    return planner::build_machine(planner::parse_devices(list), planner::read_host_facts(),
                                  &real_gpus());
}

}  // namespace

TEST_CASE("a launch has its arguments as words, its shape and its shared memory", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        auto device = make_gpu_device(fake.driver(), 0, card(vendor), {});
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
        planner::Device info = card(vendor);
        info.limits.max_grid = {1000, 70, 8};
        auto device = make_gpu_device(fake.driver(), 0, info, {});
        device->load(fake_kernel("nothing"));
        device->launch(0, {}, {1000, 70, 8}, {});
        for (const std::array<int64_t, 3>& grid :
             {std::array<int64_t, 3>{1001, 1, 1}, {1, 71, 1}, {1, 1, 9}, {-1, 1, 1}})
            CHECK_THAT(error_of([&] { device->launch(0, {}, grid, {}); }),
                       Contains(info.name + ", which takes"));
        CHECK(fake.calls(vendor.launch) == 1);
    }
}

TEST_CASE("what was captured is done at each replay, with the arguments that it had", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        auto device = make_gpu_device(fake.driver(), 0, card(vendor), {});
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
        // A wait or an allocation has no place in a capture: the driver ends it, but of a pool it would capture that.
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
        auto device = make_gpu_device(fake.driver(), 0, card(vendor, 1 << 26), {});
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
        auto device = make_gpu_device(fake.driver(), 0, card(vendor), {});
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
            auto device = make_gpu_device(fake.driver(), 1, card(vendor), {.poison = true});
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
    const runtime::test::Environment pools("CLEAVE_HIP_POOLS", "1");
    for (const Vendor& vendor : kVendors) {
        for (const char* call :
             {vendor.allocate, vendor.pool, vendor.pinned, vendor.fill, vendor.copy, vendor.stream,
              vendor.wait, vendor.load, vendor.find, vendor.launch, vendor.free}) {
            INFO(call);
            const FakeGpu fake(vendor.kind);
            fake.fail(call, 1, 700);
            const std::string error = error_of([&] {
                auto device = make_gpu_device(fake.driver(), 0, card(vendor), {});
                use_all(*device);
            });
            CHECK_THAT(error, Contains(call) && Contains(card(vendor).name));
            if (vendor.kind == DeviceKind::kCuda)
                CHECK_THAT(error, Contains("CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access "
                                           "was encountered)"));
            CHECK(fake.alive() == 0);
        }
    }
}

TEST_CASE("a device's memory is a pool of its own, which goes with it, where the card has pools",
          "[runtime]") {
    const runtime::test::Environment pools("CLEAVE_HIP_POOLS", "1");
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        const auto driver = fake.driver();
        auto first = make_gpu_device(driver, 0, card(vendor), {});
        auto second = make_gpu_device(driver, 1, card(vendor), {});
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
        CHECK_THAT(error_of([&] { first->enable_peer_access(*second); }), Contains(open));
        first.reset();
        second.reset();
        CHECK(fake.calls(vendor.destroy) == 2);
        CHECK(fake.alive() == 0);
        // The third card has none.
        auto third = make_gpu_device(driver, 2, card(vendor), {});
        third->allocate(1000, "weights");
        CHECK(fake.calls(vendor.pool) == 2);
        CHECK(fake.calls(vendor.plain) == 1);
        fake.fail(vendor.plain, 1, 700);
        CHECK_THAT(error_of([&] { third->allocate(1000, "more"); }), Contains(vendor.plain));
        third.reset();
        CHECK(fake.alive() == 0);
    }
}

TEST_CASE("after a kernel's fault every call fails, and the device still goes", "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        INFO(vendor.list);
        const FakeGpu fake(vendor.kind);
        auto device = make_gpu_device(fake.driver(), 0, card(vendor), {});
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
        auto first = make_gpu_device(driver, 0, card(vendor), {});
        auto logical = make_gpu_device(driver, 0, card(vendor), {});
        auto second = make_gpu_device(driver, 1, card(vendor), {});
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
        CHECK_THAT(error_of([&] { first->enable_peer_access(*second); }), Contains(call));
        if (vendor.kind == DeviceKind::kCuda) {
            auto third = make_gpu_device(driver, 2, card(vendor), {});
            CHECK_THAT(first->supports_peer_copy(*third).reason, Contains("no access"));
        }
        const FakeGpu stranger(vendor.kind == DeviceKind::kCuda ? DeviceKind::kHip
                                                                : DeviceKind::kCuda);
        auto other = make_gpu_device(stranger.driver(), 0, card(vendor), {});
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
        auto device = make_gpu_device(fake.driver(), 0, card(vendor, int64_t{60} << 30), {});
        fake.take(int64_t{63} << 30);
        const std::string error =
            error_of([&] { device->allocate(int64_t{20} << 30, "the weights arena"); });
        CHECK_THAT(error, Contains("the weights arena") && Contains("21474836480") &&
                              Contains("64424509440") && Contains("bytes free"));
        CHECK(device->allocated_bytes() == 0);
    }
}

TEST_CASE("cards are chosen by index, UUID and PCI address, in the user's order", "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    const Installed installed(fake, DeviceKind::kCuda);
    const planner::Machine all = machine_of("cuda[0-2]");
    REQUIRE(all.devices.size() == 3);
    CHECK(all.devices[0].arch == "sm_90a");
    CHECK(all.devices[2].arch == "sm_86");
    CHECK(all.devices[0].identity == "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
    CHECK(all.devices[0].pci == "0000:3b:00.0");
    CHECK(all.devices[0].limits.max_grid[1] == 65'535);
    CHECK(all.devices[0].memory_bandwidth == 3'350'000'000'000);  // the catalogue knows an H100
    CHECK(all.link(planner::DeviceId(0), planner::DeviceId(1))->kind == planner::LinkKind::kNvlink);
    CHECK(all.link(planner::DeviceId(0), planner::DeviceId(2))->kind == planner::LinkKind::kPcie);

    const planner::Machine chosen = machine_of("cuda[GPU-7071],cuda[0000:5e:00.0],cuda[0]");
    std::vector<int> order;
    for (const planner::Device& d : chosen.devices) order.push_back(d.index);
    CHECK(order == std::vector<int>{2, 1, 0});

    CHECK_THAT(error_of([] { machine_of("cuda[3]"); }),
               Contains("cuda[3]: there is no such device") && Contains("0000:86:00.0"));
    CHECK_THAT(error_of([] { machine_of("cuda[GPU-ffff]"); }), Contains("no such device"));
    CHECK_THAT(error_of([] { machine_of("cuda[GPU-]"); }),
               Contains("several devices are so called"));
    for (const char* twice : {"cuda[2],cuda[GPU-7071]", "cuda[2],cuda[2]/0-1"})
        CHECK_THAT(error_of([&] { machine_of(twice); }),
                   Contains("one card") && Contains("cuda[2]"));
    CHECK(fake.alive() == 0);
}

TEST_CASE("logical devices of a card share its memory and its bandwidth", "[runtime]") {
    const FakeGpu fake(DeviceKind::kHip);
    const Installed installed(fake, DeviceKind::kHip);
    const planner::Machine machine = machine_of("hip[1]/0-3");
    REQUIRE(machine.devices.size() == 4);
    for (const planner::Device& d : machine.devices) {
        CHECK(d.memory_bytes == int64_t{16} << 30);
        CHECK(d.index == 1);
        CHECK(d.memory_domain == 0);
        CHECK(d.arch == "gfx90a");
    }
    CHECK(machine.link(planner::DeviceId(0), planner::DeviceId(3))->kind ==
          planner::LinkKind::kSameMemory);
}

TEST_CASE("a plan for other devices is refused with both lists", "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda);
    const Installed installed(fake, DeviceKind::kCuda);
    planner::Machine machine = machine_of("cuda[0-1]");
    CHECK(find_card(machine.devices[1], machine.devices) == 1);
    machine.devices[1].identity = "GPU-99999999-0000-0000-0000-000000000000";
    const std::string error = error_of([&] { find_card(machine.devices[1], machine.devices); });
    CHECK_THAT(error, Contains("made for other devices") && Contains("GPU-99999999") &&
                          Contains("GPU-40414243") && Contains("make the plan anew"));
}

TEST_CASE("a device that is not there is told with all that were declared and all cards there are",
          "[runtime]") {
    const FakeGpu fake(DeviceKind::kCuda), other(DeviceKind::kHip);
    const Installed cuda(fake, DeviceKind::kCuda);
    const Installed hip(other, DeviceKind::kHip);
    // A matcher of several must not outlive its parts.
    const auto check = [](const std::string& error, const std::vector<std::string>& parts) {
        for (const std::string& part : parts) CHECK_THAT(error, Contains(part));
    };
    const std::string cuda_card = "cuda[0] (NVIDIA H100 80GB HBM3, GPU-10111213-";
    for (const char* missing : {"cuda[3]", "cuda[GPU-ffff]", "cuda[0000:99:00.0]", "hip[7]"}) {
        const std::string list = fmt::format("cuda[0],{},host[0]", missing);
        const std::string error = error_of([&] { machine_of(list); });
        CHECK_THAT(error, StartsWith(missing));
        check(error, {fmt::format("(declared: cuda[0], {}, host[0])", missing), cuda_card,
                      "0000:86:00.0", "hip[2] (AMD Instinct MI300X, GPU-cccc", "0000:c1:00.0",
                      "by index, UUID or PCI address"});
    }
    const runtime::test::Environment shown("CUDA_VISIBLE_DEVICES", "0,1,2");
    check(error_of([] { machine_of("cuda[3]"); }), {"CUDA_VISIBLE_DEVICES=0,1,2"});
    // A vendor whose library is not there at all.
    const planner::Machine planned = machine_of("cuda[0],hip[1],host[0]");
    use_gpu_library(DeviceKind::kHip, "libnothing-of-the-kind.so");
    const std::string no_hip = "no hip device: not installed (tried libnothing-of-the-kind.so)";
    std::string error = error_of([] { machine_of("cuda[1],hip[0]"); });
    CHECK_THAT(error, StartsWith("hip[0]"));
    check(error,
          {"(declared: cuda[1], hip[0])", cuda_card, no_hip, "'host' devices", "sim:MODEL[N]"});
    error = error_of([&] { find_card(planned.devices[1], planned.devices); });
    CHECK_THAT(error, StartsWith("hip[1]"));
    check(error, {"made for other devices", "hip[1] (AMD Instinct MI250X, GPU-bbbb", ", host[0];",
                  cuda_card, no_hip, "make the plan anew"});
    CHECK(fake.alive() + other.alive() == 0);
}

TEST_CASE("every variable that chooses among a vendor's cards is shown", "[runtime]") {
    const FakeGpu cuda(DeviceKind::kCuda), hip(DeviceKind::kHip);
    const Installed first(cuda, DeviceKind::kCuda), second(hip, DeviceKind::kHip);
    const runtime::test::Environment nvidia("CUDA_VISIBLE_DEVICES", "0,1,2"),
        low("ROCR_VISIBLE_DEVICES", "2,1,0"), amd("HIP_VISIBLE_DEVICES", "1,2,0");
    CHECK(list_gpus(DeviceKind::kCuda).visible == "CUDA_VISIBLE_DEVICES=0,1,2");
    CHECK_THAT(list_gpus(DeviceKind::kHip).visible,
               StartsWith("ROCR_VISIBLE_DEVICES=2,1,0, HIP_VISIBLE_DEVICES=1,2,0, "
                          "CUDA_VISIBLE_DEVICES=0,1,2"));
    const std::string error = error_of([] { machine_of("hip[3]"); });
    CHECK_THAT(error, Contains("ROCR_VISIBLE_DEVICES=2,1,0 chooses") &&
                          Contains("HIP_VISIBLE_DEVICES=1,2,0 chooses"));
    CHECK(error.find("CUDA_VISIBLE_DEVICES") == error.rfind("CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("a card keeps back what is taken of it and what a session takes beside the plan",
          "[runtime]") {
    for (const Vendor& vendor : kVendors) {
        const FakeGpu fake(vendor.kind);
        const Installed installed(fake, vendor.kind);
        fake.take(int64_t{3} << 30);
        const planner::Machine machine = machine_of(std::string(vendor.list) + "[0]");
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
        const runtime::test::Environment users(variable, "5");
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
        REQUIRE(
            (vendor.kind == DeviceKind::kCuda ? open_cuda_driver(names) : open_hip_driver(names))
                .driver);
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
        const FoundDriver found =
            vendor.kind == DeviceKind::kCuda ? open_cuda_driver(none) : open_hip_driver(none);
        CHECK_FALSE(found.driver);
        CHECK_THAT(found.reason, Contains("libnothing-of-the-kind.so"));
    }
    // The other vendor's library has other symbols.
    const std::string wrong[] = {FakeGpu(DeviceKind::kHip).path()};
    CHECK_THAT(open_cuda_driver(wrong).reason, Contains("lacks cuInit"));
}

TEST_CASE("the vendors' real libraries load and find no device where there is none", "[runtime]") {
    for (DeviceKind kind : planner::kCardKinds) {
        use_gpu_library(kind, "");
        const FoundDriver& found = gpu_driver(kind);
        INFO(planner::device_kind_name(kind) << ": " << found.reason);
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
