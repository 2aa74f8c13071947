// SPDX-License-Identifier: Apache-2.0
// One table for all kernels: operator x dtype x shape x target, each number against double
// precision within the bound of its dtype. On simt targets operands have their exact size, every
// access is checked, and threads run in eight orders; on the host guard words stand beside them.
#include <regex>

#include "codegen/gpu/kernels.h"
#include "tests/simt/kernel_case.h"
#include "tests/simt/shipped.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace simt = cleave::runtime::simt;

namespace {

simt::SimtProgram compile(const codegen::Kernel& kernel, const std::string& arch) {
    codegen::SimtCompileOptions options;
    options.file_name = "stub";
    return simt::compile_simt(kernel.source, kernel.name, arch, options);
}

// Every row, or every nth.
void check_table_on(const std::string& arch, size_t every = 1) {
    size_t index = 0;
    for (const Shipped& shipped : shipped_kernels(arch))
        if (index++ % (every * kOneOf) == 0) CHECK(shipped.wrong({}, 1, 8) == "");
}

}  // namespace

TEST_CASE("every kernel is right on simt:sm_80 in eight orders of its threads", "[simt]") {
    check_table_on("sm_80");
}
TEST_CASE("every kernel is right on simt:sm_90a in eight orders of its threads", "[simt]") {
    check_table_on("sm_90a");
}
TEST_CASE("every kernel is right on simt:gfx90a in eight orders of its threads", "[simt]") {
    check_table_on("gfx90a");
}
TEST_CASE("every kernel is right on simt:gfx942 in eight orders of its threads", "[simt]") {
    check_table_on("gfx942");
}
TEST_CASE("every kernel is right on simt:gfx1100 in eight orders of its threads", "[simt]") {
    check_table_on("gfx1100");
}
TEST_CASE("every kernel is right on simt:gfx1201 in eight orders of its threads", "[simt]") {
    check_table_on("gfx1201");
}
TEST_CASE("every kernel is right on simt:gfx908 in eight orders of its threads", "[simt]") {
    check_table_on("gfx908");
}
// Without a matrix instruction, in wide warps and in narrow ones.
TEST_CASE("every kernel is right on simt:gfx906 in eight orders of its threads", "[simt]") {
    check_table_on("gfx906");
}
TEST_CASE("every kernel is right on simt:gfx1030 in eight orders of its threads", "[simt]") {
    check_table_on("gfx1030");
}
// gfx1030's code: a third of the rows, in which each operator comes in one dtype or another.
TEST_CASE("a third of all kernels is right on simt:sm_75 in eight orders of their threads",
          "[simt]") {
    check_table_on("sm_75", 3);
}

TEST_CASE("products and attention of 64 tokens and more are a warpgroup's on sm_90a", "[simt]") {
    for (int64_t units : {1, 8})
        for (const auto& make : warpgroup_cases()) {
            const codegen::Kernel kernel = make_kernel(make(), {"sm_90a", units, {}});
            CHECK(kernel.tile.main_loop == planner::MainLoop::kWarpgroups);
        }
}

TEST_CASE("attention that is 2 % off is wrong in every row of the table", "[simt]") {
    int rows = 0;
    for (const char* arch : {"sm_90a", "gfx90a"})
        for (const Shipped& shipped : shipped_kernels(arch)) {
            if (!shipped.name.starts_with("attention") || rows++ % kOneOf != 0) continue;
            CHECK(shipped.wrong(
                      [](const std::string& source) {
                          return std::regex_replace(source, std::regex("([=*]) reciprocal\\("),
                                                    "$1 1.02f * reciprocal(");
                      },
                      0, 1) != "");
        }
    CHECK(rows > 40);
}

TEST_CASE("a kernel is as right with each smaller tile, and takes the same arguments", "[simt]") {
    size_t index = 0, shrunk = 0;
    for (const auto& make : all_cases()) {
        KernelCase first = make();
        if (index++ % 9 != 0 || first.helper) continue;  // a sample
        codegen::Kernel kernel = make_kernel(first, {"gfx1100", 1, {}});
        while (std::optional<codegen::Kernel> smaller = codegen::with_smaller_tile(kernel)) {
            kernel = std::move(*smaller);
            ++shrunk;
            KernelCase c = make();
            INFO(c.name << ": " << kernel.tile.tokens << " x " << kernel.tile.rows << ", "
                        << kernel.tile.threads << " threads");
            Outcome outcome = run_on_simt(c, kernel, compile(kernel, "gfx1100"), {9, true, 0});
            CHECK((outcome.report.clean() ? "" : outcome.report.finding->text()) == "");
            CHECK(outcome.wrong == "");
        }
    }
    CHECK(shrunk > 12);
}

TEST_CASE("every kernel of the table is right on the host", "[simt]") {
    std::mt19937 rng(11);
    size_t index = 0;
    for (const auto& make : all_cases(true)) {
        if (index++ % kOneOf != 0) continue;
        KernelCase c = make();
        if (c.activations != DType::kF32 || c.helper) continue;  // the host knows no other
        INFO("host: " << c.name);
        CHECK(run_on_host(c, rng).wrong == "");
    }
}
