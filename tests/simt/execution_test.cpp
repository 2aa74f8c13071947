// SPDX-License-Identifier: Apache-2.0
// Kernels compute what a GPU would: places, barriers, warp operations, shared memory, atomics.
#include <array>
#include <bit>
#include <cmath>

#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;

namespace {

const char* const kArchs[] = {"sm_80", "sm_90a", "gfx90a", "gfx942", "gfx1100", "gfx1201"};

}  // namespace

TEST_CASE("every thread of every block runs once at its own place", "[simt]") {
    std::string source = with_prelude(R"(
KERNEL(64) places(i32* out, i64 n) {
    int i = block_x() * threads_x() + thread_x();
    if (i < n) out[i] = 1000 * block_x() + thread_x() + 100000 * (blocks_x() == 5 && threads_x() == 64);
})");
    auto program = simt::compile_simt(source, "places", "sm_80");
    Buffer<int> out(300);
    auto report = run(program, {out.word(), 300}, {5, 64});
    INFO((report.finding ? report.finding->text() : ""));
    REQUIRE(report.clean());
    for (int i = 0; i < 300; ++i)
        REQUIRE(out[static_cast<size_t>(i)] == 100000 + 1000 * (i / 64) + i % 64);
    // Grids are as large as a device's, not as an int is.
    const std::vector<uint64_t> args{out.word(), 0};
    using Grid = std::array<int64_t, 3>;
    for (const Grid& grid : {Grid{int64_t{1} << 31, 1, 1}, Grid{1, 65536, 1}, Grid{1, 1, 65536}})
        CHECK_THAT(test::user_error([&] { simt::launch(program, args, grid, {64, 1, 1}, 0); }),
                   Catch::Contains("asks for a grid of") && Catch::Contains("sm_80 has at most"));
}

TEST_CASE("a block reduction through shuffles and shared memory gives the sum", "[simt]") {
    std::string source = with_prelude(R"(
template <int THREADS>
DEVICE float block_sum(float v) {
    SHARED(float, part[THREADS / WARP]);
    v = warp_sum(v);
    if (lane() == 0) part[warp()] = v;
    barrier();
    float s = 0.0f;
    for (int i = 0; i < THREADS / WARP; ++i) s += part[i];
    barrier();
    return s;
}
KERNEL(256) sum(const float* x, float* y, i64 n) {
    DYNAMIC_SHARED(float, tile);
    float s = 0.0f;
    for (int i = thread_x(); i < n; i += threads_x()) {
        tile[i] = x[i];
        s += tile[i];
    }
    s = block_sum<256>(s);
    y[thread_x()] = s + tile[n - 1 - thread_x()];
})");
    for (const char* arch : kArchs) {
        for (int optimization = 0; optimization < 4; ++optimization) {
            auto program = simt::compile_simt(source, "sum", arch, {optimization, true, {}, ""});
            Buffer<float> x(1000), y(256);
            for (size_t i = 0; i < 1000; ++i) x[i] = static_cast<float>(i % 7);
            double expected = 0;
            for (size_t i = 0; i < 1000; ++i) expected += x[i];
            auto report = run(program, {x.word(), y.word(), 1000}, {1, 256, 4000}, {7, true});
            INFO(arch << " O" << optimization << " "
                      << (report.finding ? report.finding->text() : ""));
            REQUIRE(report.clean());
            for (size_t t = 0; t < 256; ++t)
                REQUIRE(y[t] == static_cast<float>(expected) + x[999 - t]);
        }
    }
}
