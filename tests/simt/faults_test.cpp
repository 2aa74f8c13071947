// SPDX-License-Identifier: Apache-2.0
// Faulty kernels, each of which must be reported with its class, its line, its block and its thread
// at every optimisation level, and clean ones that look like them, which must not. A faulty
// kernel's culprit lines end in "//!". Threads that go by index always show the same fault in the
// same thread; in another order a fault that several threads share may show in any of them, and the
// message must then fit the thread that it names.
#include <array>
#include <set>

#include <fmt/format.h>

#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;
using simt::Fault;

namespace {

constexpr int kThreads = 256, kBlocks = 3;

// Whether the finding is true of its thread `t`, when threads go in any order.
using Fits = bool (*)(int t, const simt::Finding& found);

bool says(const simt::Finding& found, const std::string& text) {
    return found.detail.find(text) != std::string::npos;
}
// Races: with the thread that has the element beside, or opposite, or whichever.
template <int STEP>
bool races_beside(int t, const simt::Finding& found) {
    return says(found, fmt::format(" by thread {} with no barrier", t ^ STEP));
}
bool races_opposite(int t, const simt::Finding& found) {
    return says(found, fmt::format(" by thread {} with no barrier", 255 - t));
}
bool races_with_other(int t, const simt::Finding& found) {
    return says(found, " by ") && !says(found, fmt::format(" by thread {} ", t));
}
// What every thread does with its own element of the array, `FIRST` bytes from its start.
template <int FIRST>
bool at_own_element(int t, const simt::Finding& found) {
    return says(found, fmt::format("read of byte {} of ", FIRST + 4 * t));
}
bool any_thread(int, const simt::Finding&) { return true; }
// Those that leave find others waiting, or those that come find others gone.
bool left_or_came(bool leaves, const simt::Finding& found) {
    return says(found, leaves ? " left the kernel while " : " have left the kernel");
}

struct Case {
    const char* name;
    const char* body;  // of a kernel (float* p, i64 n); p has n = 768 floats; t, i: thread in
                       // block, in grid
    Fault fault = Fault::kRace;
    int block = 0;  // where the fault must be found
    int thread = 0;
    Fits fits = nullptr;  // null: no other thread has a fault
    const char* arch = "sm_80";
};

const Case kFaulty[] = {
    {"global write past the end", "p[i + 1] = 1.0f;  //!", Fault::kGlobalBounds, 2, 255},
    {"global write before the start", "p[i - 1] = 1.0f;  //!", Fault::kGlobalBounds, 0, 0},
    {"global read far past the end", "float v = p[i + (i == 300 ? 100000 : 0)];  //!\np[i] = v;",
     Fault::kGlobalBounds, 1, 44},
    {"global read of a vector past the end",
     "float s = p[i];\nif (i == 700) {\n auto v = load_vector<4>(p + 4 * 192);  //!\n s += v[0] + "
     "v[3];\n}\np[i] = s;",
     Fault::kGlobalBounds, 2, 188},
    {"address of nothing", "if (i == 5) reinterpret_cast<float*>(n)[0] = 1.0f;  //!",
     Fault::kWildAccess, 0, 5},
    {"misaligned vector read",
     "if (i == 9) {\n auto v = load_vector<4>(p + 1);  //!\n p[0] = v[2];\n}", Fault::kMisaligned,
     0, 9},
    {"shared write past the end",
     "SHARED(float, a[256]);\na[t + 1] = p[i];  //!\nbarrier();\np[i] = a[t];",
     Fault::kSharedBounds, 0, 255},
    {"shared write before the start",
     "SHARED(float, a[256]);\na[t - 1] = p[i];  //!\nbarrier();\np[i] = a[t];",
     Fault::kSharedBounds, 0, 0},
    {"shared write into the next variable",
     "SHARED(float, a[64]);\nSHARED(float, b[256]);\nb[t] = p[i];\nbarrier();\nif (t == 33) a[100 "
     "+ t] = 0.0f;  //!\n"
     "barrier();\np[i] = b[t];",
     Fault::kSharedBounds, 0, 33},
    {"dynamic shared write past the end",
     "DYNAMIC_SHARED(float, a);\na[t + 1] = p[i];  //!\nbarrier();\np[i] = a[t];",
     Fault::kSharedBounds, 0, 255},
    {"shared vector write past the end",
     "SHARED(f16, a[256]);\nVector<f16, 8> v;\nfor (int j = 0; j < 8; ++j) v[j] = "
     "from_float<f16>(p[i]);\n"
     "if (t < 33) store_vector(a + 8 * t, v);  //!\nbarrier();\np[i] = to_float(a[t]);",
     Fault::kSharedBounds, 0, 32},
    {"race: read after write without a barrier",
     "SHARED(float, a[256]);\na[t] = p[i];  //!\np[i] = a[255 - t];  //!", Fault::kRace, 0, 128,
     races_opposite},
    {"race: write after read without a barrier",
     "SHARED(float, a[256]);\na[t] = p[i];\nbarrier();\nfloat v = a[255 - t];  //!\na[t] = v;  "
     "//!\nbarrier();\n"
     "p[i] = a[t];",
     Fault::kRace, 0, 128, races_opposite},
    {"race: two writers of one element",
     "SHARED(float, a[256]);\na[t / 2] = p[i];  //!\nbarrier();\nif (t < 128) p[i] = a[t];",
     Fault::kRace, 0, 1, races_beside<1>},
    {"race: within a warp without warp_sync",
     "SHARED(float, a[256]);\na[t] = p[i];  //!\np[i] = a[t ^ 1];  //!", Fault::kRace, 0, 1,
     races_beside<1>},
    {"race: a shuffle is no barrier",
     "SHARED(float, a[256]);\na[t] = p[i];  //!\nfloat s = warp_sum(p[i]);\np[i] = s + a[t ^ 1];  "
     "//!",
     Fault::kRace, 0, 0, races_beside<1>},
    {"race: warp_sync does not order warps",
     "SHARED(float, a[256]);\na[t] = p[i];  //!\nwarp_sync();\np[i] = a[t ^ 32];  //!",
     Fault::kRace, 0, 32, races_beside<32>},
    {"race: 16-bit neighbours are apart, the same element is not",
     "SHARED(f16, a[256]);\na[t ^ 1] = from_float<f16>(p[i]);  //!\np[i] = to_float(a[t]);  //!",
     Fault::kRace, 0, 1, races_beside<1>},
    {"race: atomic and plain",
     "SHARED(u32, count[1]);\nif (t == 0) count[0] = 0u;\nbarrier();\natomic_add(count, 1u);  //!\n"
     "p[i] = float(count[0]);  //!",
     Fault::kRace, 0, 1, races_with_other},
    {"race: the next round overwrites before all have read",
     "SHARED(float, a[256]);\nfloat s = 0.0f;\nfor (int round = 0; round < 3; ++round) {\n a[t] = "
     "p[i] + s;  //!\n"
     " barrier();\n s += a[255 - t];  //!\n}\np[i] = s;",
     Fault::kRace, 0, 128, races_opposite},
    {"race: a flag read before the barrier",
     "SHARED(int, last[1]);\nif (t == 0) last[0] = 1;  //!\nif (last[0]) p[i] = 1.0f;  "
     "//!\nbarrier();",
     Fault::kRace, 0, 1,
     [](int t, const simt::Finding& found) {
         return t == 0 ? found.line == 5 && says(found, "read by ")
                       : found.line == 6 && says(found, "written by thread 0 ");
     }},
    {"barrier in a branch", "if (t < 100) {\n p[i] = 2.0f;\n barrier();  //!\n}\np[i] = 1.0f;",
     Fault::kDivergentBarrier, 0, 100,
     [](int t, const simt::Finding& found) { return left_or_came(t >= 100, found); }},
    {"barriers of two branches",
     "if (t < 128) {\n p[i] = 2.0f;\n barrier();  //!\n} else {\n p[i] = 3.0f;\n barrier();  "
     "//!\n}",
     Fault::kDivergentBarrier, 0, 128,
     [](int t, const simt::Finding& found) {
         return found.line == (t < 128 ? 6 : 9) && says(found, t < 128 ? "of line 9" : "of line 6");
     }},
    {"barrier in a loop of unequal length",
     "for (int r = 0; r < (t < 128 ? 3 : 2); ++r) {\n p[i] += 1.0f;\n barrier();  //!\n}",
     Fault::kDivergentBarrier, 0, 128,
     [](int t, const simt::Finding& found) { return left_or_came(t >= 128, found); }},
    {"barrier after a thread has left",
     "if (i == 259) return;\np[i] = 1.0f;\nbarrier();  //!\np[i] = 2.0f;", Fault::kDivergentBarrier,
     1, 3, [](int t, const simt::Finding& found) { return left_or_came(t == 3, found); }},
    {"barrier for some, ballot for others",
     "if (t < 16) {\n p[i] = float(ballot(true));  //!\n} else {\n barrier();  //!\n}",
     Fault::kDivergentBarrier, 0, 0},
    {"shuffle in a branch", "float v = p[i];\nif (t & 1) v = shuffle_xor(v, 1);  //!\np[i] = v;",
     Fault::kDivergentWarp, 0, 1,
     [](int t, const simt::Finding& found) { return left_or_came(t % 2 == 0, found); }},
    {"shuffles of two branches",
     "float v = p[i];\nif (t & 1) {\n v = shuffle_xor(v, 1);  //!\n} else {\n v = shuffle_xor(v + "
     "1.0f, 2);  //!\n}\np[i] = v;",
     Fault::kDivergentWarp, 0, 1,
     [](int t, const simt::Finding& found) {
         return found.line == (t % 2 ? 6 : 8) && says(found, t % 2 ? "at line 8" : "at line 6");
     }},
    {"warp_sync in a branch", "if (t < 8) {\n p[i] = 4.0f;\n warp_sync();  //!\n}",
     Fault::kDivergentWarp, 0, 8,
     [](int t, const simt::Finding& found) { return t < 32 && left_or_came(t >= 8, found); }},
    {"matrix instruction in a branch",
     "FragmentC c = zero_c();\nFragmentA<f16> a{};\nFragmentB<f16> b{};\nif (t != 40) "
     "multiply_add(c, a, b);  //!\np[i] = c.v[0];",
     Fault::kDivergentWarp, 0, 40,
     [](int t, const simt::Finding& found) { return t / 32 == 1 && left_or_came(t == 40, found); }},
    {"shuffle with a mask that leaves the caller out",
     "float v = shuffle_xor(mask_t(0xffff), p[i], 1);  //!\np[i] = v;", Fault::kInactiveLane, 0, 16,
     [](int t, const simt::Finding& found) {
         return t % 32 >= 16 && says(found, fmt::format("lane {} calls", t % 32));
     }},
    {"shuffle that reads a lane outside its mask",
     "float v = p[i];\nif (lane() < 16) v = shuffle(mask_t(0xffff), v, 20);  //!\np[i] = v;",
     Fault::kInactiveLane, 0, 15,
     [](int t, const simt::Finding& found) {
         return t % 32 < 16 && says(found, fmt::format("lane {} reads lane 20", t % 32));
     }},
    {"shuffle of a warp that a lane has left",
     "if (t == 6) return;\nfloat v = shuffle_xor(p[i], 1);  //!\np[i] = v;", Fault::kDivergentWarp,
     0, 6, [](int t, const simt::Finding& found) { return t < 32 && left_or_came(t == 6, found); }},
    {"masked shuffle that names a lane that has left",
     "if (lane() == 6) return;\nfloat v = lane() < 16 ? shuffle_xor(mask_t(0xffff), p[i], 1) : "
     "0.0f;  //!\np[i] = v;",
     Fault::kInactiveLane, 0, 6,
     [](int t, const simt::Finding& found) {
         return t % 32 < 16 && says(found, t % 32 == 6 ? "lane 6, named by" : "names lane 6");
     }},
    {"uninitialised shared element",
     "SHARED(float, a[256]);\nif (t != 7) a[t] = p[i];\nbarrier();\np[i] = a[255 - t];  //!",
     Fault::kUninitialised, 0, 248},
    {"shared memory of the block before",
     "SHARED(float, a[256]);\nif (block_x() == 0) a[t] = p[i];\nbarrier();\np[i] = a[t];  //!",
     Fault::kUninitialised, 1, 0, at_own_element<0>},
    {"uninitialised dynamic shared memory", "DYNAMIC_SHARED(float, a);\np[i] = a[t];  //!",
     Fault::kUninitialised, 0, 0, at_own_element<0>},
    {"private array read past its end",
     "float a[8];\nfor (int j = 0; j < 8; ++j) a[j] = p[j];\np[i] = a[t < 200 ? t % 8 : t % 8 + "
     "1];  //!",
     Fault::kPrivateBounds, 0, 207,
     [](int t, const simt::Finding& found) {
         return t >= 200 && t % 8 == 7 && says(found, "index 8 ");
     }},
    {"private array written before its start",
     "float a[8];\nfor (int j = 0; j < 8; ++j) a[j] = 0.0f;\na[t % 8 - (t == 100 ? 5 : 0)] = 1.0f; "
     " //!\n"
     "for (int j = 0; j < 8; ++j) p[i] += a[j];",
     Fault::kPrivateBounds, 0, 100},
    {"private array in a loop one too long",
     "float a[8];\nfloat s = 0.0f;\nfor (int j = 0; j <= 8; ++j) a[j] = p[j];  //!\nfor (int j = "
     "0; j < 8; ++j) s += a[j];\np[i] = s;",
     Fault::kPrivateBounds, 0, 0, any_thread},
    {"constant table read past its end",
     "constexpr float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};\np[i] = table[t == 17 ? 4 : t % 4];  "
     "//!",
     Fault::kPrivateBounds, 0, 17},
    {"asynchronous copy that nobody waited for",
     "SHARED(float, a[256]);\nasync_copy<4>(&a[t], &p[i]);\nasync_commit();\nbarrier();\np[i] = "
     "a[t];  //!",
     Fault::kAsyncCopy, 0, 0, at_own_element<0>},
    {"asynchronous copies of which too few were waited for",
     "SHARED(float, a[512]);\nasync_copy<4>(&a[t], &p[i]);\nasync_commit();\nasync_copy<4>(&a[256 "
     "+ t], &p[i]);\n"
     "async_commit();\nasync_wait<1>();\nbarrier();\np[i] = a[t] + a[256 + t];  //!",
     Fault::kAsyncCopy, 0, 0, at_own_element<1024>},
    {"asynchronous copy waited for without a barrier",
     "SHARED(float, a[256]);\nasync_copy<4>(&a[t], &p[i]);  "
     "//!\nasync_commit();\nasync_wait<0>();\np[i] = a[t ^ 64];  //!",
     Fault::kRace, 0, 64, races_beside<64>},
    {"wave of 64: lanes 32 apart are one warp, lanes 64 apart are not",
     "SHARED(float, a[256]);\na[t] = p[i];  //!\nwarp_sync();\np[i] = a[t ^ 32] + a[t ^ 64];  //!",
     Fault::kRace, 0, 64, races_beside<64>, "gfx90a"},
};

const Case kClean[] = {
    {"shared exchange between barriers",
     "SHARED(float, a[256]);\na[t] = p[i];\nbarrier();\nfloat v = a[255 - t];\nbarrier();\na[t] = "
     "v;\nbarrier();\np[i] = a[t ^ 7];"},
    {"exchange within a warp under warp_sync",
     "SHARED(float, a[256]);\na[t] = p[i];\nwarp_sync();\nfloat v = a[t ^ 1];\nwarp_sync();\na[t] "
     "= v;\nwarp_sync();\np[i] = a[t ^ 3];"},
    {"lanes 32 apart of a wave of 64",
     "SHARED(float, a[256]);\na[t] = p[i];\nwarp_sync();\np[i] = a[t ^ 32];", Fault::kRace, 0, 0,
     nullptr, "gfx942"},
    {"neighbouring 16-bit elements of different threads",
     "SHARED(f16, a[256]);\na[t] = from_float<f16>(p[i]);\nbarrier();\np[i] = to_float(a[t ^ 1]);"},
    {"neighbouring bytes of different threads",
     "SHARED(u8, a[256]);\na[t] = u8(t);\nbarrier();\np[i] = float(a[t ^ 1]);"},
    {"the same element read by all",
     "SHARED(float, a[256]);\na[t] = p[i];\nbarrier();\nfloat s = 0.0f;\n"
     "for (int j = 0; j < 256; ++j) s += a[j];\nbarrier();\na[t] = s;\nbarrier();\np[i] = a[0];"},
    {"atomics of all threads on few counters",
     "SHARED(u32, count[4]);\nif (t < 4) count[t] = 0u;\nbarrier();\natomic_add(&count[t % 4], "
     "1u);\nbarrier();\np[i] = float(count[t % 4]);"},
    {"a flag behind a barrier",
     "SHARED(int, last[1]);\nif (t == 0) last[0] = block_x() == 1;\nbarrier();\nif (last[0]) p[i] "
     "= 1.0f;"},
    {"threads that leave after the last barrier", "barrier();\nif (t & 1) return;\np[i] = 1.0f;"},
    {"a barrier in a loop of equal length",
     "for (int r = 0; r < 3; ++r) {\n p[i] += 1.0f;\n barrier();\n}"},
    {"halves of a warp that shuffle apart",
     "float v = p[i];\nif (lane() < 16) {\n v = shuffle_xor(mask_t(0xffff), v, 1);\n} else {\n v = "
     "shuffle_xor(mask_t(0xffff0000), v, 2);\n}\np[i] = v;"},
    {"reads guarded by a condition",
     "float v = i + 700 < n ? p[i + 700] : 0.0f;\nif (i < n) p[i] = v;"},
    {"a private array indexed by data",
     "float a[8];\nfor (int j = 0; j < 8; ++j) a[j] = p[j];\np[i] = a[t % 8];"},
    {"a loop over pointers that ends one past the array",
     "float a[8];\nfor (float* q = a; q != a + 8; ++q) *q = 1.0f;\nfloat s = 0.0f;\nfor (const "
     "float* q = a; q != a + 8; ++q) s += *q;\np[i] = s;"},
    {"a constant table",
     "constexpr float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};\np[i] = table[t % 4];"},
    {"asynchronous copies in two stages",
     "SHARED(float, a[2][256]);\nasync_copy<4>(&a[0][t], &p[i]);\nasync_commit();\nfloat s = "
     "0.0f;\n"
     "for (int r = 0; r < 4; ++r) {\n async_copy<4>(&a[(r + 1) % 2][t], &p[i], r < 3);\n "
     "async_commit();\n async_wait<1>();\n"
     " barrier();\n s += a[r % 2][t ^ 64];\n barrier();\n}\np[i] = s;"},
    {"a shared variable reused by turns under a barrier",
     "SHARED(float, a[256]);\nfloat s = 0.0f;\nfor (int round = 0; round < 3; ++round) {\n a[t] = "
     "p[i] + s;\n barrier();\n"
     " s += a[255 - t];\n barrier();\n}\np[i] = s;"},
};

std::string kernel_source(const Case& c) {
    return with_prelude(
        "KERNEL(256) kernel(float* p, i64 n) {\nint t = thread_x();\nint i = block_x() * 256 + "
        "t;\n" +
        std::string(c.body) + "\n(void)i;\n(void)t;\n}");
}

// Lines of the kernel that end in "//!".
std::set<int> marked_lines(const Case& c) {
    std::set<int> lines;
    int line = 4;
    for (const char* at = c.body; *at; ++at) {
        if (*at == '\n') ++line;
        if (at[0] == '/' && at[1] == '/' && at[2] == '!') lines.insert(line);
    }
    return lines;
}

simt::SimtReport run_case(const simt::SimtProgram& program, uint64_t seed) {
    Buffer<float> p(kThreads * kBlocks, 1.0f);
    return run(program, {p.word(), kThreads * kBlocks}, {kBlocks, kThreads, 1024},
               {seed, seed != 0});
}

}  // namespace

TEST_CASE("every planted fault is reported with class and line and block and thread", "[simt]") {
    for (const Case& c : kFaulty) {
        for (int optimization = 0; optimization < 4; ++optimization) {
            auto program = simt::compile_simt(kernel_source(c), "kernel", c.arch,
                                              {optimization, true, {}, ""});
            for (uint64_t seed : {0, 1, 2}) {
                auto report = run_case(program, seed);
                INFO(c.name << " at O" << optimization << ", seed " << seed);
                CHECK_FALSE(report.clean());
                if (report.clean()) continue;
                const simt::Finding& found = *report.finding;
                INFO(found.text());
                CHECK(simt::fault_name(found.fault) == simt::fault_name(c.fault));
                CHECK(found.file == "test.cu");
                CHECK(marked_lines(c).count(found.line) == 1);
                CHECK(found.kernel == "kernel");
                CHECK(found.block == std::array{c.block, 0, 0});
                CHECK((found.thread[1] == 0 && found.thread[2] == 0));
                if (seed == 0 || !c.fits) CHECK(found.thread[0] == c.thread);
                if (c.fits) CHECK(c.fits(found.thread[0], found));
            }
        }
    }
}

TEST_CASE("clean kernels that look like faulty ones are silent", "[simt]") {
    for (const Case& c : kClean) {
        for (int optimization = 0; optimization < 4; ++optimization) {
            auto program = simt::compile_simt(kernel_source(c), "kernel", c.arch,
                                              {optimization, true, {}, ""});
            for (uint64_t seed : {0, 1, 2, 3}) {
                auto report = run_case(program, seed);
                INFO(c.name << " at O" << optimization << ", seed " << seed);
                INFO((report.finding ? report.finding->text() : ""));
                CHECK(report.clean());
            }
        }
    }
}

TEST_CASE("a clean kernel without one of its needed barriers is reported", "[simt]") {
    for (const Case& c : kClean) {
        std::string source = kernel_source(c);
        // Where a barrier only marks time, its loss is no fault.
        bool needed = std::string(c.body).find("SHARED") != std::string::npos;
        int count = count_syncs(source), caught = 0;
        for (int i = 0; i < count; ++i) {
            auto program = simt::compile_simt(without_sync(source, i), "kernel", c.arch);
            bool found = false;
            for (uint64_t seed : {0, 1, 2, 3}) found = found || !run_case(program, seed).clean();
            caught += found;
        }
        INFO(c.name << ": " << count << " barriers, " << caught
                    << " of which were missed when gone");
        if (needed) CHECK(caught == count);
        if (!needed) CHECK(caught == 0);
    }
}
