// SPDX-License-Identifier: Apache-2.0
// What running GPU source on the CPU costs: compilation, a barrier, a shuffle, a matrix
// instruction, and a matrix-vector product with and without checks. Prints one line a figure; with
// an argument, the product alone.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>

#include "codegen/text/templates.h"
#include "runtime/simt/memory.h"
#include "runtime/simt/simt.h"

namespace {

using namespace cleave;
using namespace cleave::runtime::simt;

// Of this thread, which does all the work: other programs on the machine count less.
double processor_time() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds(const std::function<void()>& body, int repeats = 5) {
    double best = 1e30;
    for (int i = 0; i < repeats; ++i) {
        double start = processor_time();
        body();
        best = std::min(best, processor_time() - start);
    }
    return best;
}

std::string source() {
    return codegen::flatten_template("gpu/prelude.cuh") + R"(
namespace cleave {
KERNEL(1024) barriers(float* p, i64 n) {
    for (i64 i = 0; i < n; ++i) barrier();
    p[thread_x()] = 1.0f;
}
KERNEL(1024) shuffles(float* p, i64 n) {
    float v = float(thread_x());
    for (i64 i = 0; i < n; ++i) v = shuffle_xor(v, 1 + int(i & 15));
    p[thread_x()] = v;
}
KERNEL(1024) sums(float* p, i64 n) {
    float v = float(thread_x());
    for (i64 i = 0; i < n; ++i) v = warp_sum(v) * 0.03f;
    p[thread_x()] = v;
}
KERNEL(1024) products(float* p, i64 n) {
    FragmentA<f16> a{};
    FragmentB<f16> b{};
    FragmentC c = zero_c();
    for (i64 i = 0; i < n; ++i) multiply_add(c, a, b);
    p[thread_x()] = c.v[0];
}
KERNEL(256) matvec(const f16* w, const float* x, float* y, i64 rows, i64 n) {
    DYNAMIC_SHARED(float, xs);
    for (int i = thread_x(); i < n; i += 256) xs[i] = x[i];
    barrier();
    for (i64 row = i64(block_x()) * (256 / WARP) + warp(); row < rows; row += i64(blocks_x()) * (256 / WARP)) {
        float sum = 0.0f;
        for (int i = lane() * 8; i < n; i += WARP * 8) {
            auto part = load_vector<8>(w + row * n + i);
#pragma unroll
            for (int j = 0; j < 8; ++j) sum += to_float(part[j]) * xs[i + j];
        }
        sum = warp_sum(sum);
        if (lane() == 0) y[row] = sum;
    }
}
}
)";
}

SimtProgram compile(const char* entry, const char* arch, bool checks) {
    return compile_simt(source(), entry, arch, {1, checks, {}, ""});
}

void print_compile_times() {
    for (bool checks : {false, true}) {
        double t = seconds([&] { compile("matvec", "sm_80", checks); });
        std::printf("compile and load matvec, %s checks: %.1f ms\n", checks ? "with" : "without",
                    t * 1e3);
    }
}

void print_meetings(const char* arch) {
    auto* p = static_cast<float*>(allocate_slots(4096, 0));
    auto word = reinterpret_cast<uint64_t>(p);
    for (bool checks : {false, true}) {
        for (const char* entry : {"barriers", "shuffles", "sums", "products"}) {
            SimtProgram program = compile(entry, arch, checks);
            Engine engine;
            for (int threads : {64, 256}) {
                for (bool shuffle : {true}) {
                    uint64_t rounds = entry[0] == 'p' ? 500'000 / static_cast<uint64_t>(threads)
                                                      : 5'000'000 / static_cast<uint64_t>(threads);
                    uint64_t args[] = {word, rounds};
                    double t = seconds(
                        [&] {
                            engine.launch(program, args, {1, 1, 1}, {threads, 1, 1}, 0,
                                          {1, shuffle});
                        },
                        3);
                    std::printf("%s %-8s %4d threads, checks %d, shuffled %d: %.1f ns a thread\n",
                                arch, entry, threads, checks, shuffle,
                                t * 1e9 / static_cast<double>(rounds) / threads);
                }
            }
        }
    }
    free_slots(p);
}

void print_matvec() {
    constexpr uint64_t kRows = 2048, kColumns = 2048;
    auto* w = static_cast<uint16_t*>(allocate_slots(kRows * kColumns * 2, 0));
    auto* x = static_cast<float*>(allocate_slots(kColumns * 4, 0));
    auto* y = static_cast<float*>(allocate_slots(kRows * 4, 0));
    uint64_t args[] = {reinterpret_cast<uint64_t>(w), reinterpret_cast<uint64_t>(x),
                       reinterpret_cast<uint64_t>(y), kRows, kColumns};
    for (bool checks : {false, true}) {
        SimtProgram program = compile("matvec", "sm_80", checks);
        Engine engine;
        double t =
            seconds([&] { engine.launch(program, args, {64, 1, 1}, {256, 1, 1}, kColumns * 4); });
        std::printf("matvec 2048 x 2048, %s checks: %.2f ms, %.2f GFLOP/s\n",
                    checks ? "with" : "without", t * 1e3, 2e-9 * kRows * kColumns / t);
    }
}

}  // namespace

int main(int argc, char**) {
    if (argc > 1) {
        print_matvec();
        return 0;
    }
    print_compile_times();
    print_meetings("sm_80");
    print_meetings("gfx90a");
    print_matvec();
}
