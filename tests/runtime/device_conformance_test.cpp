// SPDX-License-Identifier: Apache-2.0
// The conformance suite of drivers: every driver takes the same tests. One that cannot do a thing says so with
// the reason in its entry of `drivers()`, and the test leaves it out. CLEAVE_TEST_GPU names a GPU that takes them alone
// (tools/gpu-check).
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "codegen/compiler.h"
#include "codegen/kernel_spec.h"
#include "codegen/simt_compiler.h"
#include "runtime/base/convert.h"
#include "runtime/drivers/gpu_device.h"
#include "runtime/drivers/host_memory.h"
#include "runtime/drivers/null_device.h"
#include "runtime/drivers/simt_device.h"
#include "tests/runtime/fake_gpus.h"
#include "tests/runtime/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::runtime;
using runtime::test::fake_kernel;
using runtime::test::fixed_kernels;
using runtime::test::host_info;

namespace {

constexpr int64_t kMemory = 1 << 24;

// args: counters, one an item; a counter of misaligned scratch. Marks its scratch to see whether it is its own.
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
};

std::unique_ptr<Device> open_simt(const char* arch) {
    planner::Device info = host_info(0, kMemory);
    info.kind = planner::DeviceKind::kSimt;
    info.arch = arch;
    return make_simt_device(info, {});
}

std::unique_ptr<Device> open_fake(planner::DeviceKind kind) {
    planner::Device info = host_info(0, kMemory);
    info.kind = kind;
    return make_gpu_device(runtime::test::FakeGpu(kind).driver(), 0, info, {});
}

std::vector<codegen::CompiledKernel> gpu_kernel(const char* arch) {
    const char* source = "extern \"C\" __attribute__((global)) void nothing() {}";
    return {codegen::compile_simt_kernel(source, "nothing", codegen::gpu_arch(arch), {})};
}

// The GPU of that name in a device list, of which the tests may use kMemory.
Driver real_gpu(const std::string& name) {
    const planner::Machine machine = planner::build_machine(
        planner::parse_devices(name), planner::read_host_facts(), &real_gpus());
    planner::Device info = machine.devices.at(0);
    info.memory_bytes = kMemory;
    return {name,
            [info] { return make_gpu_device(gpu_driver(info.kind).driver, info.index, info, {}); },
            {true, ""},
            {false, "these kernels are the host's; the kernel table launches GPUs'"},
            [info] {
                codegen::GpuTarget target;
                target.device = info.arch;
                target.limits = info.limits;
                codegen::Program program;
                program.arch = info.arch;
                program.kernels = {codegen::make_gpu_helper(codegen::ArgmaxSpec{32}, target)};
                return codegen::compile_program(program, {});
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
             [] { return fake_kernel("nothing"); }},
            {"hip on a recording fake",
             [] { return open_fake(planner::DeviceKind::kHip); },
             {true, ""},
             {false, "the fake has kernels of its own; gpu_device_test launches them"},
             [] { return fake_kernel("nothing"); }},
            {"simt sm_80",
             [] { return open_simt("sm_80"); },
             {true, ""},
             {false, "the simt driver runs GPU kernels; tests/simt launches some"},
             [] { return gpu_kernel("sm_80"); }},
            {"simt gfx90a",
             [] { return open_simt("gfx90a"); },
             {true, ""},
             {false, "the simt driver runs GPU kernels; tests/simt launches some"},
             [] { return gpu_kernel("gfx90a"); }}};
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
        // A matrix [4, 10] of bytes; columns 3..7 of rows 1..3 go out, and into another matrix [3, 6] at column 1.
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
                    device.reduce(sources, with_residual ? residual : 0, sum, count, dtype);
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
