// SPDX-License-Identifier: Apache-2.0
// Every kernel that ships, with each of its barriers deleted in turn: the emulator reports it, at some order of the
// threads, or the numbers are wrong. And with all of them: silent under eight orders.
#include <map>

#include "planner/gpu_tiles.h"
#include "tests/simt/kernel_case.h"
#include "tests/simt/support.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace simt = cleave::runtime::simt;

namespace {

simt::SimtProgram compile(const std::string& source, const std::string& entry,
                          const std::string& arch) {
    codegen::SimtCompileOptions options;
    options.file_name = "stub";
    return simt::compile_simt(source, entry, arch, options);
}

// A kernel of the table and the target it is written for.
struct Shipped {
    std::function<KernelCase()> make;
    Target target;
};

std::vector<std::function<KernelCase()>> attention_of_warpgroups() {
    std::vector<std::function<KernelCase()>> all;
    for (const auto& make : warpgroup_cases())
        if (make().kind == planner::KernelKind::kAttention) all.push_back(make);
    return all;
}

// Small grids that take each path: both main loops, over several slices and several passes, and both attentions.
std::vector<Shipped> shipped_kernels() {
    std::vector<Shipped> all;
    for (const auto& make : all_cases()) {
        KernelCase c = make();
        all.push_back({make, {"sm_80", 8, {}}});
        if (c.matrix_tolerance > 1e-4 && c.counts.tokens > 8)
            all.push_back({make, {"gfx90a", 8, {}}});
        if (c.matrix_tolerance > 1e-4 && c.counts.tokens >= planner::kWarpgroupTokens)
            all.push_back({make, {"sm_90a", 8, {}}});
    }
    for (const auto& make : attention_of_warpgroups()) all.push_back({make, {"sm_90a", 8, {}}});
    // Activations that do not fit at once: staged in four turns.
    auto make = [] { return linear_case(DType::kF32, 512, 24, 1, {.norm = true}); };
    const planner::DeviceLimits limits = limits_of("sm_80", 8);
    planner::Tile tile = planner::product_tile(limits, {512, 24, 1, 4});
    tile.depth = 128;
    all.push_back({make, {"sm_80", 8, tile}});
    return all;
}

// Whether the kernel with that source is caught, at some order of its threads.
bool breaks(const Shipped& shipped, const codegen::Kernel& kernel, const std::string& source) {
    simt::SimtProgram program = compile(source, kernel.name, shipped.target.name);
    for (uint64_t seed = 0; seed < 6; ++seed) {
        KernelCase c = shipped.make();
        Outcome outcome = run_on_simt(c, kernel, program, {seed, seed > 0, 0});
        if (!outcome.report.clean() || !outcome.wrong.empty()) return true;
    }
    return false;
}

}  // namespace

TEST_CASE("every kernel is silent under eight orders of its threads", "[simt]") {
    std::vector<Shipped> all;
    for (const auto& make : all_cases()) all.push_back({make, {"gfx1100", 8, {}}});
    for (const auto& make : attention_of_warpgroups()) all.push_back({make, {"sm_90a", 8, {}}});
    for (const Shipped& shipped : all) {
        KernelCase c = shipped.make();
        INFO(c.name);
        codegen::Kernel kernel = make_kernel(c, shipped.target);
        simt::SimtProgram program = compile(kernel.source, kernel.name, shipped.target.name);
        for (uint64_t seed = 0; seed < 8; ++seed) {
            KernelCase again = shipped.make();
            Outcome outcome = run_on_simt(again, kernel, program, {seed, true, 0});
            CHECK((outcome.report.clean() ? "" : outcome.report.finding->text()) == "");
            CHECK(outcome.wrong == "");
        }
    }
}

TEST_CASE("a kernel without one of its barriers is caught", "[simt]") {
    // A barrier is needed when some kernel that contains its line cannot do without it.
    std::map<std::string, bool> needed;  // "file:line of the call's text" -> caught
    for (const Shipped& shipped : shipped_kernels()) {
        KernelCase c = shipped.make();
        codegen::Kernel kernel = make_kernel(c, shipped.target);
        for (int i = 0; i < simt_test::count_syncs(kernel.source); ++i) {
            std::string place = simt_test::sync_place(kernel.source, i);
            if (needed[place]) continue;
            INFO(c.name << " without " << place);
            needed[place] = breaks(shipped, kernel, simt_test::without_sync(kernel.source, i));
        }
    }
    REQUIRE(needed.size() >= 10);
    for (const auto& [place, caught] : needed) {
        INFO(place);
        CHECK(caught);
    }
}
