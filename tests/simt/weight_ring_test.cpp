// SPDX-License-Identifier: Apache-2.0
// Rings of weights (codegen/templates/gpu/weight_ring.cuh): which devices have them, that the
// kernel table shows them in each of their ways, and that one which does not wait for its copies,
// or overtakes them, is caught.
#include <map>
#include <regex>
#include <set>

#include "codegen/kernel/occupancy.h"
#include "tests/simt/kernel_case.h"
#include "tests/simt/shipped.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;
namespace simt = cleave::runtime::simt;

namespace {

// Numbers of a product's Config; empty for other kernels.
std::map<std::string, int64_t> constants_of(const std::string& source) {
    const std::string stub = source.substr(source.rfind("struct Config"));
    static const std::regex kConstant("constexpr i64 (k\\w+) = (\\d+);");
    std::map<std::string, int64_t> found;
    for (std::sregex_iterator at(stub.begin(), stub.end(), kConstant), end; at != end; ++at)
        found[(*at)[1]] = std::stoll((*at)[2]);
    return found.count("kStages") ? found : std::map<std::string, int64_t>();
}

// How a ring goes round, by the arithmetic of the template.
struct Rounds {
    int64_t stages, steps_of_row, steps;
    bool uneven, parts;

    explicit Rounds(std::map<std::string, int64_t> c, int64_t width) : stages(c["kStages"]) {
        const int64_t step = c["kLanes"] * width;
        const int64_t groups = c["kThreads"] / c["kLanes"];
        parts = c["kDepth"] < c["kIn"];
        uneven = c["kIn"] % step != 0;
        steps_of_row = (c["kIn"] + step - 1) / step;
        steps = c["kRows"] / (groups * c["kAtOnce"]) * steps_of_row;
    }
    bool comes_round() const { return steps > stages; }
};

std::string finding_of(const KernelCase& drawn, const codegen::Kernel& kernel,
                       const std::string& source, const std::string& arch) {
    KernelCase c = drawn;
    const auto program = simt::compile_simt(source, kernel.name, arch);
    const Outcome outcome = run_on_simt(c, kernel, program);
    return outcome.report.clean() ? outcome.wrong : outcome.report.finding->text();
}

std::string replaced(std::string source, const std::string& what, const std::string& by) {
    const size_t at = source.find(what);
    REQUIRE(at != std::string::npos);
    return source.replace(at, what.size(), by);
}

KernelCase ring_case() {
    return linear_case(DType::kBF16, 1032, 400, 1, {.norm = true, .residual = true});
}
KernelCase parts_case() { return linear_case(DType::kF32, 512, 24, 1, {.norm = true}); }

}  // namespace

TEST_CASE("devices that copy asynchronously have rings of weights, up to four tokens", "[simt]") {
    for (const codegen::GpuArch& arch : codegen::gpu_archs())
        for (int64_t tokens : {1, 4, 5}) {
            const codegen::Kernel kernel = make_kernel(
                linear_case(DType::kBF16, 512, 64, tokens, {}), {std::string(arch.name), 8, {}});
            INFO(arch.name << ", " << tokens << " tokens");
            const bool copies = arch.vendor == planner::Vendor::kNvidia && arch.number >= 80;
            CHECK((constants_of(kernel.source)["kStages"] >= 2) == (copies && tokens <= 4));
            // It is filled first, whether the launch overlaps others or not.
            CHECK((kernel.source.find("    linear_ahead<Config>(a);") != std::string::npos) ==
                  (copies && tokens <= 4));
        }
}

TEST_CASE(
    "rings of the kernel table come round, over ends of rows and of staged activations and "
    "of lanes",
    "[simt]") {
    for (const char* arch : {"sm_80", "sm_90a"}) {
        int rings = 0, round = 0, uneven = 0, over_rows = 0;
        std::set<std::string> kinds;
        for (const auto& make : all_cases()) {
            const KernelCase c = make();
            const std::string source = make_kernel(c, {arch, 8, {}}).source;
            if (source.find("kMany = true") != std::string::npos)
                continue;  // slices of both operands
            const auto constants = constants_of(source);
            if (constants.empty() || constants.at("kStages") == 0) continue;
            const bool wide = c.name.find(" f32 ") != std::string::npos;
            const Rounds r(constants, wide ? 4 : 8);
            INFO(arch << ": " << c.name << ", " << r.stages << " stages of " << r.steps);
            CHECK(r.steps >= r.stages);
            CHECK_FALSE(r.parts);
            ++rings;
            kinds.insert(c.name.substr(0, c.name.find(' ')));
            round += r.comes_round();
            uneven += r.comes_round() && r.uneven;
            over_rows += r.comes_round() && r.stages > r.steps_of_row;
        }
        CHECK(rings >= 10);
        CHECK(kinds == std::set<std::string>{"gate_up", "linear", "qkv"});
        CHECK(round >= 3);
        CHECK(uneven >= 2);
        CHECK(over_rows >= 1);
        const codegen::Kernel parts = make_kernel(parts_case(), {arch, 8, tile_of_parts(arch)});
        const Rounds r(constants_of(parts.source), 4);
        CHECK(r.parts);
        CHECK(r.comes_round());
    }
}

TEST_CASE("a ring that is read before its copies have arrived is reported", "[simt]") {
    const std::string wait = "async_wait<F::kStages - 1>();";
    for (const std::string arch : {"sm_80", "sm_90a"})
        for (bool parts : {false, true}) {
            const KernelCase c = parts ? parts_case() : ring_case();
            std::optional<planner::Tile> tile;
            if (parts) tile = tile_of_parts(arch);
            const codegen::Kernel kernel = make_kernel(c, {arch, 8, tile});
            INFO(arch << ": " << c.name);
            CHECK(finding_of(c, kernel, kernel.source, arch) == "");
            for (const std::string instead : {"", "async_wait<F::kStages>();"})
                CHECK(finding_of(c, kernel, replaced(kernel.source, wait, instead), arch)
                          .find("asynchronous copy") != std::string::npos);
        }
}

TEST_CASE("a ring refilled from the wrong row or in the wrong slot gives wrong numbers", "[simt]") {
    const KernelCase c = ring_case();
    const codegen::Kernel kernel = make_kernel(c, {"sm_90a", 8, {}});
    for (const auto& [what, by] : std::map<std::string, std::string>{
             {"row_of(F::first_row(turn % F::kTurns) + r)", "row_of(F::first_row(0) + r)"},
             {"slot = slot + kSlotBytes == kBytes ? 0 : slot + kSlotBytes;",
              "slot = slot + kSlotBytes == kBytes ? kSlotBytes : slot + kSlotBytes;"}})
        CHECK(finding_of(c, kernel, replaced(kernel.source, what, by), "sm_90a") != "");
}
