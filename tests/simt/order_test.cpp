// SPDX-License-Identifier: Apache-2.0
// Thread order follows the seed alone; device memory keeps allocations apart.
#include <set>

#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;

namespace {

// The order in which threads of two blocks draw tickets, before a barrier, after it and after a warp operation.
std::vector<uint32_t> tickets(const simt::SimtProgram& program, simt::LaunchOptions options,
                              int os_threads) {
    constexpr size_t kCount = 2 * 128 * 3;
    Buffer<uint32_t> counters(2), out(kCount);
    simt::Engine engine(os_threads);
    uint64_t args[] = {counters.word(), out.word()};
    auto report = engine.launch(program, args, {2, 1, 1}, {128, 1, 1}, 0, options);
    REQUIRE(report.clean());
    std::vector<uint32_t> order;
    for (size_t i = 0; i < kCount; ++i) order.push_back(out[i]);
    return order;
}

}  // namespace

TEST_CASE("the same seed gives the same order on any number of OS threads and another seed another",
          "[simt]") {
    auto program = simt::compile_simt(with_prelude(R"(
KERNEL(128) draw(u32* counters, u32* out) {
    u32* mine = counters + block_x();
    u32* row = out + (block_x() * 128 + thread_x()) * 3;
    row[0] = atomic_add(mine, 1u);
    barrier();
    row[1] = atomic_add(mine, 1u);
    shuffle_xor(1u, 1);
    row[2] = atomic_add(mine, 1u);
})"),
                                      "draw", "sm_89");
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
