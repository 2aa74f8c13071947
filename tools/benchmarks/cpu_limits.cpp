// SPDX-License-Identifier: Apache-2.0
#include "tools/benchmarks/cpu_limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/base/matrix_tiles.h"
#include "runtime/base/rounding.h"

namespace cleave::bench {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Shortest of several times that all threads take for a run of `work` each.
template <class Work>
double best_seconds(int threads, const Work& work) {
    double best = 1e30;
    for (int repeat = 0; repeat < 8; ++repeat) {
        const Clock::time_point start = Clock::now();
        std::vector<std::thread> team;
        for (int t = 0; t < threads; ++t) team.emplace_back([&work, t] { work(t); });
        for (std::thread& thread : team) thread.join();
        best = std::min(best, seconds_since(start));
    }
    return best;
}

constexpr int64_t kRounds = 2'000'000, kTileRounds = 200'000;
constexpr int kSums = 16;  // independent ones hide the latency; unrolled, they stay in registers

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void multiply_f32_wide() {
    __m512 sums[kSums] = {}, x = _mm512_set1_ps(0.5F);
#pragma GCC unroll 16
    for (__m512& sum : sums) asm volatile("" : "+v"(sum));
    for (int64_t i = 0; i < kRounds; ++i) {
        asm volatile("" : "+v"(x));
#pragma GCC unroll 16
        for (__m512& sum : sums) sum = _mm512_fmadd_ps(x, x, sum);
    }
    for (__m512& sum : sums) asm volatile("" : "+v"(sum));
}

__attribute__((target("avx2,fma"))) void multiply_f32() {
    __m256 sums[kSums - 4] = {}, x = _mm256_set1_ps(0.5F);
#pragma GCC unroll 16
    for (__m256& sum : sums) asm volatile("" : "+x"(sum));
    for (int64_t i = 0; i < kRounds; ++i) {
        asm volatile("" : "+x"(x));
#pragma GCC unroll 16
        for (__m256& sum : sums) sum = _mm256_fmadd_ps(x, x, sum);
    }
    for (__m256& sum : sums) asm volatile("" : "+x"(sum));
}

__attribute__((target("avx512f,avx512bw,avx512bf16"))) void multiply_bf16() {
    __m512 sums[kSums] = {};
    __m512i x = _mm512_set1_epi32(0x3f003f00);
#pragma GCC unroll 16
    for (__m512& sum : sums) asm volatile("" : "+v"(sum));
    for (int64_t i = 0; i < kRounds; ++i) {
        asm volatile("" : "+v"(x));
#pragma GCC unroll 16
        for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)x);
    }
    for (__m512& sum : sums) asm volatile("" : "+v"(sum));
}

__attribute__((target("avx512f,avx512vnni"))) void multiply_int8() {
    __m512i sums[kSums] = {}, x = _mm512_set1_epi32(0x01010101);
#pragma GCC unroll 16
    for (__m512i& sum : sums) asm volatile("" : "+v"(sum));
    for (int64_t i = 0; i < kRounds; ++i) {
        asm volatile("" : "+v"(x));
#pragma GCC unroll 16
        for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, x, x);
    }
    for (__m512i& sum : sums) asm volatile("" : "+v"(sum));
}

// Two tiles of weights meet two of tokens, each of 16 rows of 64 bytes.
constexpr int kTiles = 4;

struct alignas(64) TileSizes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

template <bool kInt8>
__attribute__((target("amx-tile,amx-bf16,amx-int8"))) void multiply_tiles() {
    const TileSizes sizes;
    _tile_loadconfig(&sizes);
    for (int64_t i = 0; i < kTileRounds; ++i) {
        if constexpr (kInt8) {
            _tile_dpbusd(0, 4, 6);
            _tile_dpbusd(1, 4, 7);
            _tile_dpbusd(2, 5, 6);
            _tile_dpbusd(3, 5, 7);
        } else {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_release();
}

double rate(int threads, void (*loop)(), int sums, int operations, int64_t rounds = kRounds) {
    const double amount = static_cast<double>(rounds) * sums * operations * threads;
    return amount / best_seconds(threads, [&](int) { loop(); });
}

void measure_units(int threads, CpuLimits& limits) {
    if (__builtin_cpu_supports("avx512f")) {
        limits.f32 = rate(threads, multiply_f32_wide, kSums, 32);
        limits.f32_unit = "512-bit FMA";
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        limits.f32 = rate(threads, multiply_f32, kSums - 4, 16);
        limits.f32_unit = "256-bit FMA";
    }
    if (__builtin_cpu_supports("avx512bf16")) {
        limits.bf16 = rate(threads, multiply_bf16, kSums, 64);
        limits.bf16_unit = "vdpbf16ps";
    }
    if (__builtin_cpu_supports("avx512vnni")) {
        limits.int8 = rate(threads, multiply_int8, kSums, 128);
        limits.int8_unit = "vpdpbusd";
    }
    if (!__builtin_cpu_supports("amx-tile") || !may_use_tiles()) return;
    constexpr int kBf16 = 2 * 16 * 16 * 32, kInt8 = 2 * 16 * 16 * 64;  // operations of a product
    if (__builtin_cpu_supports("amx-bf16")) {
        limits.bf16 = rate(threads, multiply_tiles<false>, kTiles, kBf16, kTileRounds);
        limits.bf16_unit = "AMX tdpbf16ps";
    }
    if (__builtin_cpu_supports("amx-int8")) {
        limits.int8 = rate(threads, multiply_tiles<true>, kTiles, kInt8, kTileRounds);
        limits.int8_unit = "AMX tdpbusd";
    }
}

#else

void measure_units(int, CpuLimits&) {}

#endif

}  // namespace

double read_bandwidth(int threads, size_t bytes) {
    // Huge pages, as weights have them: without them page walks take a fifth of the rate here.
    constexpr size_t kHugePage = size_t{2} << 20, kBlock = 32;
    const size_t count = round_up(bytes, kHugePage) / sizeof(uint64_t);
    const std::unique_ptr<uint64_t, decltype(&std::free)> data(
        static_cast<uint64_t*>(std::aligned_alloc(kHugePage, count * sizeof(uint64_t))),
        &std::free);
    if (!data) throw std::bad_alloc();
    ::madvise(data.get(), count * sizeof(uint64_t), MADV_HUGEPAGE);
    std::fill_n(data.get(), count, 1);
    std::vector<uint64_t> sums(static_cast<size_t>(threads));
    double best = 1e30;
    // Each thread reads so many streams at once, as kernels read rows: which is fastest is the
    // machine's.
    for (const size_t streams : {1, 2, 4, 8})
        best = std::min(
            best, best_seconds(threads, [&](int t) {
                const auto part = count / static_cast<size_t>(threads) / streams / kBlock * kBlock;
                const uint64_t* first = data.get() + static_cast<size_t>(t) * part * streams;
                uint64_t lanes[kBlock] = {};
                for (size_t i = 0; i < part; i += kBlock)
                    for (size_t s = 0; s < streams; ++s)
                        for (size_t l = 0; l < kBlock; ++l) lanes[l] += first[s * part + i + l];
                for (const uint64_t lane : lanes) sums[static_cast<size_t>(t)] += lane;
            }));
    // The sums are used, so that the loop is not optimised away.
    return sums[0] == 0 ? 0 : static_cast<double>(bytes) / best;
}

CpuLimits measure_limits(int threads, size_t bytes) {
    CpuLimits limits;
    limits.read = read_bandwidth(threads, bytes);
    measure_units(threads, limits);
    return limits;
}

}  // namespace cleave::bench
