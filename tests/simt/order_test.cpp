// SPDX-License-Identifier: Apache-2.0
// Thread order follows the seed alone, and so does the fault that is told; device memory keeps
// allocations apart.
#include <set>

#include "runtime/cards/open_devices.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;

namespace {

constexpr size_t kTickets = 2 * 128 * 3;

// Threads of two blocks draw tickets, before a barrier, after it and after a warp operation.
const char* const kDraw = R"(
KERNEL(128) draw(u32* counters, u32* out) {
    u32* mine = counters + block_x();
    u32* row = out + (block_x() * 128 + thread_x()) * 3;
    row[0] = atomic_add(mine, 1u);
    barrier();
    row[1] = atomic_add(mine, 1u);
    shuffle_xor(1u, 1);
    row[2] = atomic_add(mine, 1u);
})";

std::vector<uint32_t> tickets(const simt::SimtProgram& program, simt::LaunchOptions options,
                              int os_threads) {
    Buffer<uint32_t> counters(2), out(kTickets);
    simt::Engine engine(os_threads);
    uint64_t args[] = {counters.word(), out.word()};
    auto report = engine.launch(program, args, {2, 1, 1}, {128, 1, 1}, 0, options);
    REQUIRE(report.clean());
    std::vector<uint32_t> order;
    for (size_t i = 0; i < kTickets; ++i) order.push_back(out[i]);
    return order;
}

// The same on the second device of a session that was given this seed, or none.
std::vector<uint32_t> tickets_of_session(const std::vector<codegen::CompiledKernel>& kernels,
                                         std::optional<uint64_t> seed) {
    planner::Plan plan;
    for (const char* name : {"simt:sm_89[0]", "simt:sm_89[1]"}) {
        planner::DeviceInfo device;
        device.name = name;
        device.kind = planner::DeviceKind::kSimt;
        device.arch = "sm_89";
        plan.machine.devices.push_back(device);
    }
    runtime::Drivers drivers;
    const auto devices = runtime::open_devices(plan, drivers, {.simt_seed = seed});
    runtime::Device& device = *devices[1];
    device.load(kernels);
    const runtime::DeviceAddress counters = device.allocate(8, "counters");
    const runtime::DeviceAddress out = device.allocate(4 * kTickets, "out");
    device.fill(counters, 8, 0);
    codegen::Launch launch;
    launch.block = {128, 1, 1};
    const uint64_t args[] = {counters, out};
    device.launch(0, args, {2, 1, 1}, launch);
    std::vector<uint32_t> order(kTickets);
    device.download(out, std::as_writable_bytes(std::span(order)));
    return order;
}

}  // namespace

TEST_CASE("the same seed gives the same order on any number of OS threads and another seed another",
          "[simt]") {
    auto program = simt::compile_simt(with_prelude(kDraw), "draw", "sm_89");
    std::set<std::vector<uint32_t>> orders;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        auto once = tickets(program, {seed, true}, 1);
        CHECK(once == tickets(program, {seed, true}, 1));
        CHECK(once == tickets(program, {seed, true}, 2));
        orders.insert(once);
    }
    CHECK(orders.size() == 8);
    CHECK(tickets(program, {1, false}, 1) == tickets(program, {2, false}, 2));
}

TEST_CASE("devices are opened with the order of a seed, and without one threads go by index",
          "[simt]") {
    const std::vector<codegen::CompiledKernel> kernels{
        codegen::compile_simt_kernel(with_prelude(kDraw), "draw", codegen::gpu_arch("sm_89"), {})};
    const std::vector<uint32_t> by_index = tickets_of_session(kernels, {});
    for (uint32_t t = 0; t < 256; ++t) CHECK(by_index[t * 3] == t % 128);
    std::set<std::vector<uint32_t>> orders{by_index};
    for (uint64_t seed : {0, 1, 2}) {
        orders.insert(tickets_of_session(kernels, seed));
        CHECK(orders.count(tickets_of_session(kernels, seed)) == 1);
    }
    CHECK(orders.size() == 4);
}

TEST_CASE("the fault told is the first block's that shows one, on any number of OS threads",
          "[simt]") {
    // Blocks behind it are done long before.
    const auto program = simt::compile_simt(with_prelude(R"(
KERNEL(32) late(u32* counters) {
    for (int i = 0; block_x() == 5 && i < 3000; ++i) atomic_add(counters, 1u);
    if (block_x() >= 5) counters[1 + block_x() + thread_x()] = 1u;
})"),
                                            "late", "sm_89");
    for (int os_threads : {1, 2, 4}) {
        simt::Engine engine(os_threads);
        Buffer<uint32_t> counters(1);
        const uint64_t args[] = {counters.word()};
        for (uint64_t seed : {1, 2}) {
            const auto report =
                engine.launch(program, args, {64, 1, 1}, {32, 1, 1}, 0, {seed, true});
            REQUIRE_FALSE(report.clean());
            CHECK(report.finding->block[0] == 5);
        }
        // A launch of one block has nothing of what others found before it.
        CHECK(engine.launch(program, args, {1, 1, 1}, {32, 1, 1}, 0).clean());
    }
}

TEST_CASE("allocations lie in slots of their own and a freed one is not reused at once", "[simt]") {
    void* a = simt::allocate_slots(1, 7);
    void* b = simt::allocate_slots(5'000'000'000, 7);  // spans two slots
    auto at = [](void* p, uint64_t offset) {
        return simt::slot_of(reinterpret_cast<uint64_t>(p) + offset);
    };
    REQUIRE(a);
    REQUIRE(b);
    CHECK(at(a, 0) != at(b, 0));
    CHECK(at(a, 0)->end - at(a, 0)->begin == 1);
    CHECK(at(b, 0) + 1 == at(b, 4'900'000'000));
    CHECK(at(b, 4'900'000'000)->owner == 7);
    static_cast<char*>(b)[4'999'999'999] = 1;
    simt::free_slots(b);
    void* c = simt::allocate_slots(64, 7);
    CHECK(at(c, 0) != at(b, 0));
    CHECK(at(b, 0)->end == 0);
    CHECK(at(b, 4'900'000'000)->end == 0);
    simt::free_slots(a);
    simt::free_slots(c);
    CHECK(simt::slot_of(0x1000) == nullptr);
}
