// SPDX-License-Identifier: Apache-2.0
// Launches that may begin before those before them have ended: a kernel reads weights alone until
// it has waited, writes nothing, and every thread waits. Faulty kernels, whose culprit lines end in
// "//!", clean ones, and those that ship.
#include <set>

#include "tests/simt/kernel_case.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::simt_test;
using simt::Fault;

namespace {

constexpr int kThreads = 256, kBlocks = 3;
constexpr const char* kWait = "await_previous_launch();";

struct Case {
    const char* name;
    const char*
        body;  // of a kernel (const float* w, float* x, i64 n): weights and values, n of each
    Fault fault = Fault::kEarlyAccess;
    int block = -1, thread = -1;
};

const Case kFaulty[] = {
    {"a write before the wait", "x[i] = 1.0f;  //!\nawait_previous_launch();", Fault::kEarlyAccess,
     0, 0},
    {"a read of values before the wait",
     "float v = x[i];  //!\nawait_previous_launch();\nx[i] = v + w[i];", Fault::kEarlyAccess, 0, 0},
    {"one thread's read of a value before the wait",
     "float v = t == 99 ? x[i] : w[i];  //!\nawait_previous_launch();\nx[i] = v;",
     Fault::kEarlyAccess, 0, 99},
    {"an atomic update before the wait", "atomic_add(x + t, 1.0f);  //!\nawait_previous_launch();",
     Fault::kEarlyAccess, 0, 0},
    {"a write of weights before the wait",
     "const_cast<float*>(w)[i] = 2.0f;  //!\nawait_previous_launch();", Fault::kEarlyAccess, 0, 0},
    {"an asynchronous copy of values before the wait",
     "SHARED(float, a[256]);\nasync_copy<4>(&a[t], x + i);  //!\nasync_commit();\n"
     "await_previous_launch();\nasync_wait<0>();\nx[i] = a[t];",
     Fault::kEarlyAccess, 0, 0},
    {"a thread that leaves before the wait",
     "if (i == 300) return;\nawait_previous_launch();  //!\nx[i] = w[i];", Fault::kNoWait, 1, 44},
    {"a block that leaves before the wait",
     "if (block_x() == 1) return;\nawait_previous_launch();  //!\nx[i] = w[i];", Fault::kNoWait, 1,
     0},
    {"a wait in a branch", "if (t < 128) await_previous_launch();  //!\n", Fault::kNoWait, 0, 128},
};

const Case kClean[] = {
    {"weights read before the wait", "float v = w[i];\nawait_previous_launch();\nx[i] += v;"},
    {"shared memory written before the wait",
     "SHARED(float, a[256]);\na[t] = w[i];\nbarrier();\nawait_previous_launch();\nx[i] = a[255 - "
     "t];"},
    {"threads that leave after the wait",
     "await_previous_launch();\nif (t & 1) return;\nx[i] = "
     "w[i];"},
    {"a wait more than once", "await_previous_launch();\nx[i] = w[i];\nawait_previous_launch();"},
};

std::string source_of(const Case& c) {
    return with_prelude(
        "KERNEL(256) kernel(const float* w, float* x, i64 n) {\nint t = thread_x();\nint i = "
        "block_x() * 256 + t;\n" +
        std::string(c.body) + "\n(void)i;\n(void)t;\n(void)n;\n}");
}

std::set<int> marked_lines(const char* body) {
    std::set<int> lines;
    int line = 4;
    for (const char* at = body; *at; ++at) {
        if (*at == '\n') ++line;
        if (at[0] == '/' && at[1] == '/' && at[2] == '!') lines.insert(line);
    }
    return lines;
}

simt::SimtReport run_overlapping(const simt::SimtProgram& program, uint64_t seed,
                                 bool overlaps = true) {
    Buffer<float> w(kThreads * kBlocks, 1.0f), x(kThreads * kBlocks, 2.0f);
    simt::LaunchOptions options{seed, seed != 0};
    options.overlaps = overlaps;
    options.constant_args = 1;
    return run(program, {w.word(), x.word(), kThreads * kBlocks}, {kBlocks, kThreads, 0}, options);
}

std::string text_of(const simt::SimtReport& report) {
    return report.clean() ? "" : report.finding->text();
}

// Once each text that calls a template's function differently: "linear<Config>", "add<Config>".
std::string entry_call(const std::string& source) {
    const size_t end = source.rfind("<Config>("), begin = source.find_last_of(" \n", end);
    return source.substr(begin + 1, end - begin - 1);
}

}  // namespace

TEST_CASE("what a launch does before it has waited is reported with class and line and thread",
          "[simt]") {
    for (const Case& c : kFaulty)
        for (int optimization : {0, 1, 3}) {
            const auto program =
                simt::compile_simt(source_of(c), "kernel", "sm_90a", {optimization, true, {}, ""});
            for (uint64_t seed : {0, 1, 2}) {
                const simt::SimtReport report = run_overlapping(program, seed);
                INFO(c.name << " at O" << optimization << ", seed " << seed);
                REQUIRE_FALSE(report.clean());
                const simt::Finding& found = *report.finding;
                INFO(found.text());
                CHECK(simt::fault_name(found.fault) == simt::fault_name(c.fault));
                CHECK(found.file == "test.cu");
                CHECK(marked_lines(c.body).count(found.line) == 1);
                CHECK(found.block[0] == c.block);
                if (seed == 0 || c.thread > 0) CHECK(found.thread[0] == c.thread);
            }
        }
}

TEST_CASE("a kernel that never waits is reported, and silent where it does not overlap", "[simt]") {
    const Case never{"", "x[i] = w[i];"};
    const auto without = simt::compile_simt(source_of(never), "kernel", "sm_90a");
    CHECK_FALSE(run_overlapping(without, 0).clean());
    CHECK(text_of(run_overlapping(without, 0, false)) == "");
    const auto idle = simt::compile_simt(source_of({"", ""}), "kernel", "sm_90a");
    REQUIRE_FALSE(run_overlapping(idle, 0).clean());
    CHECK(run_overlapping(idle, 0).finding->fault == Fault::kNoWait);
}

TEST_CASE("launches that wait before they touch values are silent", "[simt]") {
    for (const Case& c : kClean)
        for (int optimization : {0, 3}) {
            const auto program =
                simt::compile_simt(source_of(c), "kernel", "sm_90a", {optimization, true, {}, ""});
            for (uint64_t seed : {0, 1}) {
                INFO(c.name << " at O" << optimization << ", seed " << seed);
                CHECK(text_of(run_overlapping(program, seed)) == "");
            }
        }
}

// Their results, with the wait in its place, are the kernel table's.
TEST_CASE("each shipped kernel that overlaps is caught without its wait or with it too late",
          "[simt]") {
    std::set<std::string> seen;
    for (const auto& make : test::all_cases()) {
        const test::KernelCase drawn = make();
        const codegen::Kernel kernel = test::make_kernel(drawn, {"sm_90a", 8, {}});
        if (!kernel.launch.overlaps || !seen.insert(entry_call(kernel.source)).second) continue;
        INFO(drawn.name);
        const size_t at = kernel.source.rfind(kWait),
                     end = kernel.source.rfind('}',
                                               kernel.source.rfind("}  // namespace cleave") - 1);
        REQUIRE(at != std::string::npos);
        std::string none = kernel.source, late = kernel.source;
        late.insert(end, kWait);
        for (std::string* changed : {&none, &late}) changed->erase(at, std::string(kWait).size());
        for (const std::string& changed : {none, late}) {
            test::KernelCase c = drawn;
            const auto program = simt::compile_simt(changed, kernel.name, "sm_90a");
            const test::Outcome outcome = test::run_on_simt(c, kernel, program);
            REQUIRE_FALSE(outcome.report.clean());
            CHECK(outcome.report.finding->fault == Fault::kEarlyAccess);
        }
    }
    const std::set<std::string> all{"linear",           "gate_up",  "qkv",       "attention_decode",
                                    "embedding",        "rms_norm", "rope",      "kv_append",
                                    "gated_activation", "add",      "scale",     "select_tokens",
                                    "all_reduce",       "argmax",   "copy_rows", "prepare"};
    CHECK(seen == all);
}

TEST_CASE("kernels overlap from sm_90 on, those of few tokens, and say so", "[simt]") {
    for (const char* arch : {"sm_80", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120", "gfx942"}) {
        const bool newer = std::string(arch).size() > 5 || std::string(arch) == "sm_90";
        for (int64_t tokens : {1, 8, 64}) {
            const codegen::Kernel kernel = test::make_kernel(
                test::linear_case(DType::kBF16, 64, 64, tokens, {}), {arch, 8, {}});
            INFO(arch << ", " << tokens << " tokens");
            const bool overlaps = newer && arch[0] == 's' && tokens <= 8;
            CHECK(kernel.launch.overlaps == overlaps);
            CHECK((kernel.source.find("    await_previous_launch();\n    linear<Config>(a);") !=
                   std::string::npos) == overlaps);
            CHECK((kernel.source.find("begins before the launches before it have ended") !=
                   std::string::npos) == overlaps);
        }
    }
}
