// SPDX-License-Identifier: Apache-2.0
// The conformance suite of drivers: every driver takes the same tests. One that cannot do a thing
// says so with the reason in its entry of `drivers()`, and the test leaves it out. CLEAVE_TEST_GPU
// names a GPU that takes them alone (tools/gpu-check).
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "codegen/compile/compiler.h"
#include "codegen/compile/simt.h"
#include "codegen/gpu/kernels.h"
#include "planner/machine/build_machine.h"
#include "runtime/base/convert.h"
#include "runtime/drivers/gpu/gpu_device.h"
#include "runtime/drivers/host/host_memory.h"
#include "runtime/drivers/simt_device.h"
#include "tests/runtime/support/null_device.h"
#include "tests/runtime/support/support.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using cleave::test::fake_kernel;
using runtime::test::fixed_kernels;
using runtime::test::host_info;

namespace {

constexpr int64_t kMemory = 1 << 24;

// args: counters, one an item; a counter of misaligned scratch. Marks its scratch to see whether it
// is its own.
void count_items(const uint64_t* args, int64_t begin, int64_t end, void* scratch) {
    auto* counts = reinterpret_cast<std::atomic<int>*>(args[0]);
    auto* faults = reinterpret_cast<std::atomic<int>*>(args[1]);
    if (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) ++*faults;
    auto* words = static_cast<int64_t*>(scratch);
    for (int64_t i = begin; i < end; ++i) {
        for (int k = 0; k < 16; ++k) words[k] = i;
        ++counts[i];
        for (int k = 0; k < 16; ++k) {
            if (words[k] != i) ++*faults;
        }
    }
}

struct Driver {
    std::string name;
    std::function<std::unique_ptr<Device>()> open;
    Supports holds_data{true, ""};
    Supports runs_host_kernels{true, ""};
    // What to load where a test needs some kernel.
    std::function<std::vector<codegen::CompiledKernel>()> kernels = [] {
        return std::vector<codegen::CompiledKernel>(1);
    };
    Supports has_stream{false, "what is asked of it is done when the call returns"};
    // Two devices that may reach each other's memory, and a kernel that adds its second argument to
    // the word at its first.
    Supports has_peers{false, "its devices exchange values through the host"};
    std::function<std::vector<std::unique_ptr<Device>>()> open_two = {};
    std::function<std::vector<codegen::CompiledKernel>()> add_to_word = {};
};

constexpr const char* kAddToWord =
    "extern \"C\" __attribute__((global)) void add_to_word(unsigned long long* word, "
    "unsigned long long value) { *word += value; }";

std::unique_ptr<Device> open_simt(const char* arch) {
    planner::DeviceInfo info = host_info(0, kMemory);
    info.kind = planner::DeviceKind::kSimt;
    info.arch = arch;
    return make_simt_device(info, {});
}

std::unique_ptr<Device> open_fake(planner::DeviceKind kind) {
    return make_gpu_device(cleave::test::FakeGpu(kind).driver(), 0,
                           cleave::test::fake_card(kind, 0, kMemory), {});
}

// Two cards of one driver.
std::vector<std::unique_ptr<Device>> open_two_fakes(planner::DeviceKind kind) {
    const cleave::test::FakeGpu fake(kind);
    const std::shared_ptr<GpuDriver> driver = fake.driver();
    fake.live();
    std::vector<std::unique_ptr<Device>> devices;
    for (int i : {0, 1}) {
        planner::DeviceInfo info = host_info(i, kMemory);
        info.kind = kind;
        devices.push_back(make_gpu_device(driver, i, info, {}));
    }
    return devices;
}

std::vector<std::unique_ptr<Device>> open_two_simts(const char* arch) {
    std::vector<std::unique_ptr<Device>> devices;
    for (int i = 0; i < 2; ++i) devices.push_back(open_simt(arch));
    return devices;
}

std::vector<codegen::CompiledKernel> adding_kernel(const char* arch) {
    return {codegen::compile_simt_kernel(kAddToWord, "add_to_word", codegen::gpu_arch(arch), {})};
}

std::vector<codegen::CompiledKernel> gpu_kernel(const char* arch) {
    const char* source = "extern \"C\" __attribute__((global)) void nothing() {}";
    return {codegen::compile_simt_kernel(source, "nothing", codegen::gpu_arch(arch), {})};
}

// The GPU of that name in a device list, of which the tests may use kMemory.
Driver real_gpu(const std::string& name) {
    planner::DeviceInfo info = cleave::test::machine_at_hand(name).devices.at(0);
    info.memory_bytes = kMemory;
    const std::shared_ptr<GpuDriver> driver = Drivers().driver(info.kind).driver;
    return {name,
            [info, driver] { return make_gpu_device(driver, info.index, info, {}); },
            {true, ""},
            {false, "these kernels are the host's; the kernel table launches GPUs'"},
            [info] {
                codegen::GpuTarget target;
                target.device = info.arch;
                target.limits = info.limits;
                codegen::Program program;
                program.arch = info.arch;
                program.kernels = {codegen::make_gpu_helper(codegen::ArgmaxSpec{32}, target)};
                return codegen::compile(program, {}).objects;
            },
            {true, ""},
            {true, ""},
            // Logical devices of the card.
            [info, driver] {
                std::vector<std::unique_ptr<Device>> devices;
                for (int i = 0; i < 2; ++i)
                    devices.push_back(make_gpu_device(driver, info.index, info, {}));
                return devices;
            },
            [info] {
                codegen::Program program;
                program.arch = info.arch;
                program.kernels.emplace_back();
                program.kernels[0].name = "add_to_word";
                program.kernels[0].source = kAddToWord;
                return codegen::compile(program, {}).objects;
            }};
}

std::vector<Driver> drivers() {
    if (const char* name = std::getenv("CLEAVE_TEST_GPU")) return {real_gpu(name)};
    auto host = [](int threads) {
        return [threads] {
            return make_host_device(host_info(0, kMemory), {threads, false, false},
                                    fixed_kernels({count_items}));
        };
    };
    return {{"host with 1 thread", host(1)},
            {"host with 5 threads", host(5)},
            {"null",
             [] { return std::make_unique<NullDevice>(host_info(0, kMemory)); },
             {false, "the null driver holds no data"}},
            {"cuda on a recording fake",
             [] { return open_fake(planner::DeviceKind::kCuda); },
             {true, ""},
             {false, "the fake has kernels of its own; gpu_device_test launches them"},
             [] { return fake_kernel("nothing"); },
             {true, ""},
             {true, ""},
             [] { return open_two_fakes(planner::DeviceKind::kCuda); },
             [] { return adding_kernel("sm_90a"); }},
            {"hip on a recording fake",
             [] { return open_fake(planner::DeviceKind::kHip); },
             {true, ""},
             {false, "the fake has kernels of its own; gpu_device_test launches them"},
             [] { return fake_kernel("nothing"); },
             {true, ""},
             {true, ""},
             [] { return open_two_fakes(planner::DeviceKind::kHip); },
             [] { return adding_kernel("gfx90a"); }},
            {"simt sm_80",
             [] { return open_simt("sm_80"); },
             {true, ""},
             {false, "the simt driver runs GPU kernels; tests/simt launches some"},
             [] { return gpu_kernel("sm_80"); },
             {false, "what is asked of it is done when the call returns"},
             {true, ""},
             [] { return open_two_simts("sm_80"); },
             [] { return adding_kernel("sm_80"); }},
            {"simt gfx90a",
             [] { return open_simt("gfx90a"); },
             {true, ""},
             {false, "the simt driver runs GPU kernels; tests/simt launches some"},
             [] { return gpu_kernel("gfx90a"); },
             {false, "what is asked of it is done when the call returns"},
             {true, ""},
             [] { return open_two_simts("gfx90a"); },
             [] { return adding_kernel("gfx90a"); }}};
}

template <class Test>
void for_each_driver(bool needs_data, Test test) {
    for (const Driver& driver : drivers()) {
        if (needs_data && !driver.holds_data) {
            REQUIRE_FALSE(driver.holds_data.reason.empty());
            continue;
        }
        DYNAMIC_SECTION(driver.name) {
            auto device = driver.open();
            test(*device);
        }
    }
}

// Of devices that do their work later than they are asked to.
template <class Test>
void for_each_stream(Test test) {
    for (const Driver& driver : drivers()) {
        DYNAMIC_SECTION(driver.name) {
            auto device = driver.open();
            // The entry says the truth.
            CHECK((device->stream() != nullptr) == static_cast<bool>(driver.has_stream));
            if (driver.has_stream)
                test(*device, *device->stream());
            else
                CHECK_FALSE(driver.has_stream.reason.empty());
        }
    }
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
    return std::as_bytes(std::span(values));
}

template <class T>
std::vector<T> read(Device& device, DeviceAddress address, size_t count) {
    std::vector<T> values(count);
    device.download(address, std::as_writable_bytes(std::span(values)));
    return values;
}

}  // namespace

TEST_CASE("allocations are aligned, counted exactly and given back", "[runtime][drivers]") {
    for_each_driver(false, [](Device& device) {
        DeviceAddress a = device.allocate(1000, "a"), b = device.allocate(1, "b");
        CHECK(a % 256 == 0);
        CHECK(b % 256 == 0);
        CHECK((b >= a + 1000 || a >= b + 1));
        CHECK(device.allocated_bytes() == 1001);
        device.free(a);
        CHECK(device.allocated_bytes() == 1);
        CHECK(device.peak_allocated_bytes() == 1001);
        DeviceAddress c = device.allocate(500, "c");
        CHECK(device.peak_allocated_bytes() == 1001);
        device.free(b);
        device.free(c);
        CHECK(device.allocated_bytes() == 0);
    });
}

TEST_CASE("asking for more memory than a device has names the device, the purpose and the bytes",
          "[runtime][drivers]") {
    for_each_driver(false, [](Device& device) {
        device.allocate(kMemory / 2, "first half");
        try {
            device.allocate(kMemory / 2 + 1, "the weights arena");
            FAIL("more than the device has was given");
        } catch (const DeviceError& error) {
            std::string message = error.what();
            CHECK(message.find(device.info().name) != std::string::npos);
            CHECK(message.find("the weights arena") != std::string::npos);
            CHECK(message.find(std::to_string(kMemory / 2 + 1)) != std::string::npos);
        }
        CHECK(device.allocated_bytes() == kMemory / 2);
    });
}

TEST_CASE("what was uploaded or filled comes back", "[runtime][drivers]") {
    for_each_driver(true, [](Device& device) {
        DeviceAddress a = device.allocate(4096, "a");
        device.fill(a, 4096, 0x5a);
        std::vector<int32_t> values(16);
        std::iota(values.begin(), values.end(), 7);
        device.upload(a + 64, bytes_of(values));
        device.synchronize();
        CHECK(read<int32_t>(device, a + 64, 16) == values);
        CHECK(read<uint8_t>(device, a, 64) == std::vector<uint8_t>(64, 0x5a));
        CHECK(read<uint8_t>(device, a + 128, 64) == std::vector<uint8_t>(64, 0x5a));
    });
}

TEST_CASE("a copied rectangle arrives whole and touches nothing beside it", "[runtime][drivers]") {
    for_each_driver(true, [](Device& device) {
        // A matrix [4, 10] of bytes; columns 3..7 of rows 1..3 go out, and into another matrix [3,
        // 6] at column 1.
        DeviceAddress from = device.allocate(40, "from"), to = device.allocate(18, "to");
        std::vector<uint8_t> matrix(40);
        std::iota(matrix.begin(), matrix.end(), uint8_t{0});
        device.upload(from, bytes_of(matrix));
        device.fill(to, 18, 0xee);
        std::vector<std::byte> staging(12);
        device.copy_out(from + 13, staging.data(), {3, 4, 10, 4});
        device.synchronize();
        device.copy_in(staging.data(), to + 1, {3, 4, 4, 6});
        device.synchronize();
        CHECK(read<uint8_t>(device, to, 18) == std::vector<uint8_t>{0xee, 13, 14, 15, 16, 0xee,
                                                                    0xee, 23, 24, 25, 26, 0xee,
                                                                    0xee, 33, 34, 35, 36, 0xee});
        device.copy_out(from, staging.data(), {0, 4, 10, 4});
        device.copy_in(staging.data(), to, {3, 0, 4, 6});
        CHECK(read<uint8_t>(device, to, 2) == std::vector<uint8_t>{0xee, 13});
    });
}

TEST_CASE("a rectangle moves within a stream's memory, in order with what comes before and behind",
          "[runtime][drivers]") {
    for_each_stream([](Device& device, DeviceStream& stream) {
        DeviceAddress from = device.allocate(12, "from"), to = device.allocate(18, "to");
        std::vector<uint8_t> block(12);
        std::iota(block.begin(), block.end(), uint8_t{1});
        device.fill(to, 18, 0xee);
        device.upload(from, bytes_of(block));
        stream.copy_within(from, to + 1, {3, 4, 4, 6});
        stream.copy_within(from, to, {0, 4, 4, 6});
        CHECK(read<uint8_t>(device, to, 18) == std::vector<uint8_t>{0xee, 1, 2, 3, 4, 0xee, 0xee, 5,
                                                                    6, 7, 8, 0xee, 0xee, 9, 10, 11,
                                                                    12, 0xee});
    });
}

TEST_CASE("a launch computes every work item once, each thread in scratch of its own",
          "[runtime][drivers]") {
    for (const Driver& driver : drivers()) {
        if (!driver.holds_data || !driver.runs_host_kernels) continue;
        auto opened = driver.open();
        Device& device = *opened;
        INFO(driver.name);
        device.load(driver.kernels());
        codegen::Launch launch;
        launch.shared_bytes = 128;
        for (int64_t items : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{7}, int64_t{1000}}) {
            std::vector<std::atomic<int>> counts(1000);
            std::atomic<int> faults = 0;
            uint64_t args[] = {reinterpret_cast<uint64_t>(counts.data()),
                               reinterpret_cast<uint64_t>(&faults)};
            for (int repeat = 0; repeat < 20; ++repeat)
                device.launch(0, args, {items, 1, 1}, launch);
            device.synchronize();
            int wrong = 0;
            for (int64_t i = 0; i < 1000; ++i)
                wrong += counts[static_cast<size_t>(i)] != (i < items ? 20 : 0);
            CHECK(wrong == 0);
            CHECK(faults == 0);
        }
    }
}

TEST_CASE("a kernel that was not loaded cannot be launched", "[runtime][drivers]") {
    for (const Driver& driver : drivers()) {
        DYNAMIC_SECTION(driver.name) {
            auto device = driver.open();
            device->load(driver.kernels());
            CHECK_THROWS_AS(device->launch(1, {}, {1, 1, 1}, {}), InternalError);
        }
    }
}

TEST_CASE("a reduction sums in f32 in the order of its sources, with or without a residual",
          "[runtime][drivers]") {
    for_each_driver(true, [](Device& device) {
        for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
            for (int64_t count : {int64_t{1}, int64_t{1500}, int64_t{40000}}) {
                std::vector<std::vector<float>> terms(
                    4, std::vector<float>(static_cast<size_t>(count)));
                for (size_t s = 0; s < terms.size(); ++s) {
                    for (size_t i = 0; i < terms[s].size(); ++i) {
                        terms[s][i] =
                            static_cast<float>(static_cast<int>((i * 7 + s * 13) % 64) - 32) / 8.0f;
                    }
                }
                size_t bytes = static_cast<size_t>(dtype_bytes(dtype, count));
                std::vector<std::vector<std::byte>> stored(4, std::vector<std::byte>(bytes));
                for (size_t s = 0; s < 4; ++s)
                    convert_elements(DType::kF32, terms[s].data(), dtype, stored[s].data(), count);
                DeviceAddress residual = device.allocate(static_cast<int64_t>(bytes), "residual");
                DeviceAddress sum = device.allocate(static_cast<int64_t>(bytes), "sum");
                device.upload(residual, stored[3]);
                const std::byte* sources[] = {stored[0].data(), stored[1].data(), stored[2].data()};
                for (bool with_residual : {false, true}) {
                    int64_t arrived = 0;
                    device.reduce(sources, with_residual ? residual : 0, sum, count, dtype,
                                  [&](int64_t n) {
                                      CHECK(n > arrived);
                                      arrived = n;
                                  });
                    CHECK(arrived == static_cast<int64_t>(bytes));
                    device.synchronize();
                    std::vector<std::byte> got = read<std::byte>(device, sum, bytes);
                    std::vector<float> values(static_cast<size_t>(count));
                    convert_elements(dtype, got.data(), DType::kF32, values.data(), count);
                    int wrong = 0;
                    for (size_t i = 0; i < values.size(); ++i) {
                        float expected = terms[0][i] + terms[1][i] + terms[2][i] +
                                         (with_residual ? terms[3][i] : 0);
                        wrong += values[i] != expected;  // exact: small multiples of 1/8
                    }
                    CHECK(wrong == 0);
                }
                device.free(residual);
                device.free(sum);
            }
        }
    });
}

TEST_CASE("what is captured is not done, but by each replay, and until the captures are dropped",
          "[runtime][drivers]") {
    for_each_stream([](Device& device, DeviceStream& stream) {
        DeviceAddress a = device.allocate(256, "a"), b = device.allocate(256, "b");
        device.fill(a, 256, 1);
        device.fill(b, 256, 1);
        stream.begin_capture();
        device.fill(a, 100, 2);
        device.fill(b, 100, 3);
        const int both = stream.end_capture();
        stream.begin_capture();
        device.fill(a, 50, 4);
        const int one = stream.end_capture();
        CHECK(one != both);
        CHECK(read<uint8_t>(device, a, 256) == std::vector<uint8_t>(256, 1));
        for (int round = 0; round < 3; ++round) {
            stream.replay(both);
            CHECK(read<uint8_t>(device, a, 100) == std::vector<uint8_t>(100, 2));
            CHECK(read<uint8_t>(device, b, 100) == std::vector<uint8_t>(100, 3));
            stream.replay(one);
            device.fill(b, 100, 9);  // in order with what else is asked for
            CHECK(read<uint8_t>(device, a, 50) == std::vector<uint8_t>(50, 4));
            CHECK(read<uint8_t>(device, a + 50, 50) == std::vector<uint8_t>(50, 2));
            CHECK(read<uint8_t>(device, b, 101)[99] == 9);
            CHECK(read<uint8_t>(device, b, 101)[100] == 1);
        }
        // One that is given up leaves nothing behind.
        stream.begin_capture();
        device.fill(a, 256, 7);
        stream.abandon_capture();
        CHECK(read<uint8_t>(device, a, 1)[0] == 4);
        stream.drop_captures();
        CHECK_THROWS_AS(stream.replay(both), InternalError);
    });
}

TEST_CASE("marks have the times at which the device came to them, in the host's clock",
          "[runtime][drivers]") {
    const auto now = [] {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(
                   std::chrono::steady_clock::now().time_since_epoch())
            .count();
    };
    for_each_stream([&](Device& device, DeviceStream& stream) {
        DeviceAddress a = device.allocate(1 << 20, "a");
        for (size_t round = 0; round < 2; ++round) {  // each counts from its own origin
            const int64_t before = now();
            for (size_t i = 0; i < 4 + round; ++i) {
                stream.mark();
                device.fill(a, 1 << 20, static_cast<uint8_t>(i));
            }
            const std::vector<int64_t> times = stream.take_marks();
            const int64_t after = now();
            REQUIRE(times.size() == 4 + round);
            CHECK(std::is_sorted(times.begin(), times.end()));
            // The same clock, though whoever reads it may have been held up.
            constexpr int64_t kApart = 5'000'000, kHeldUp = 60'000'000'000;
            CHECK(times.front() > before - kApart);
            CHECK(times.back() < after + kHeldUp);
        }
        CHECK(stream.take_marks().empty());
    });
}

TEST_CASE("behind a fence all that was asked before it is done", "[runtime][drivers]") {
    for_each_stream([](Device& device, DeviceStream& stream) {
        constexpr int64_t kBytes = 1 << 16;
        DeviceAddress a = device.allocate(kBytes, "a");
        std::array<std::span<std::byte>, 2> out{stream.pinned_memory(kBytes),
                                                stream.pinned_memory(kBytes)};
        CHECK(std::all_of(out[0].begin(), out[0].end(),
                          [](std::byte b) { return b == std::byte{0}; }));
        for (uint8_t round = 1; round < 5; ++round) {  // fences are used again
            for (int i : {0, 1}) {
                device.fill(a, kBytes, static_cast<uint8_t>(10 * round + i));
                device.copy_out(a, out[static_cast<size_t>(i)].data(), {1, kBytes, kBytes, kBytes});
                stream.place_fence(3 * i);
            }
            for (int i : {0, 1}) {
                stream.await_fence(3 * i);
                const std::byte wanted{static_cast<uint8_t>(10 * round + i)};
                const auto& got = out[static_cast<size_t>(i)];
                CHECK(std::count(got.begin(), got.end(), wanted) == kBytes);
            }
        }
        const uint64_t waits = stream.synchronizations();
        device.synchronize();
        CHECK(stream.synchronizations() > waits);
        stream.settle();
        // What the wait's check throws ends the wait, and nothing else.
        stream.set_wait_check([] { throw Cancelled(); });
        CHECK_THROWS_AS(
            [&] {
                for (int i = 0; i < 100000; ++i) {
                    device.fill(a, kBytes, 0);
                    device.synchronize();
                }
            }(),
            Cancelled);
        stream.set_wait_check(nullptr);
        device.synchronize();
    });
}

TEST_CASE("kernels reach the memory of devices that they were given access to",
          "[runtime][drivers]") {
    for (const Driver& driver : drivers()) {
        DYNAMIC_SECTION(driver.name) {
            if (!driver.has_peers) {
                auto one = driver.open(), other = driver.open();
                CHECK_FALSE(driver.has_peers.reason.empty());
                const Supports can = one->supports_peer_copy(*other);
                CHECK_FALSE(can);
                CHECK_FALSE(can.reason.empty());
                CHECK_THROWS_AS(one->enable_peer_access(*other), InternalError);
                continue;
            }
            auto devices = driver.open_two();
            Device &one = *devices[0], &other = *devices[1];
            CHECK(one.supports_peer_copy(other));
            for (int again = 0; again < 2; ++again) one.enable_peer_access(other);
            one.load(driver.add_to_word());
            const DeviceAddress plain = other.allocate(64, "plain"),
                                signals = other.allocate_exchange(64, "signals");
            CHECK(other.allocated_bytes() == 128);
            for (DeviceAddress theirs : {plain, signals}) {
                other.fill(theirs, 64, 0);
                other.synchronize();
                const uint64_t args[] = {theirs + 8, 42};
                for (int launch = 0; launch < 3; ++launch) one.launch(0, args, {1, 1, 1}, {});
                one.synchronize();
                CHECK(read<uint64_t>(other, theirs, 3) == std::vector<uint64_t>{0, 126, 0});
            }
            // A page of its own that host and kernels see.
            const std::span<std::byte> mailbox = one.mailbox();
            REQUIRE(mailbox.size() == static_cast<size_t>(Device::kMailboxBytes));
            CHECK(mailbox.data() == one.mailbox().data());
            CHECK(mailbox.data() != other.mailbox().data());
            CHECK(std::count(mailbox.begin(), mailbox.end(), std::byte{0}) ==
                  Device::kMailboxBytes);
            const uint64_t args[] = {reinterpret_cast<uint64_t>(mailbox.data()), 7};
            one.launch(0, args, {1, 1, 1}, {});
            one.synchronize();
            uint64_t word = 0;
            std::memcpy(&word, mailbox.data(), sizeof word);
            CHECK(word == 7);
        }
    }
}

TEST_CASE("poisoned memory reads as NaN in every floating type", "[runtime][drivers]") {
    auto device = make_host_device(host_info(0), {1, true, false}, fixed_kernels({}));
    DeviceAddress a = device->allocate(1 << 16, "a");
    for (float value : read<float>(*device, a, 1 << 14)) REQUIRE(std::isnan(value));
    CHECK(std::isnan(f16_to_f32(read<uint16_t>(*device, a, 1)[0])));
    CHECK(std::isnan(bf16_to_f32(read<uint16_t>(*device, a, 1)[0])));
    CHECK(std::isnan(f8e4m3_to_f32(read<uint8_t>(*device, a, 1)[0])));
}

TEST_CASE("the null driver refuses to touch memory that was not allocated", "[runtime][drivers]") {
    NullDevice device(host_info(0));
    DeviceAddress a = device.allocate(16, "a");
    CHECK_THROWS_AS(device.fill(a, 17, 0), InternalError);
    CHECK_THROWS_AS(device.copy_in(nullptr, a, {2, 8, 8, 9}), InternalError);
    CHECK_NOTHROW(device.copy_in(nullptr, a, {2, 8, 8, 8}));
    CHECK(device.calls().back().name == "copy_in");
    CHECK(device.calls().back().bytes == 16);
}
