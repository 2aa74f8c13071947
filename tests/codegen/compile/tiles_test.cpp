// SPDX-License-Identifier: Apache-2.0
// What a smaller tile that was taken in compiling does to the plan: a compiler that says of large
// tiles that they take more registers than there are, or spill.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "codegen/compile/drive.h"
#include "codegen/generate.h"
#include "codegen/gpu/kernels.h"
#include "planner/file/plan_file.h"
#include "planner/verify/verify.h"
#include "tests/codegen/support/plan_programs.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::codegen;

namespace {

// Objects are empty. `measure` says what each kernel's takes.
class FakeCompiler final : public KernelCompiler {
public:
    using Measure = std::function<void(const Kernel&, Resources&)>;
    FakeCompiler(const GpuArch& arch, Measure measure)
        : arch_(arch), measure_(std::move(measure)) {}

    std::string name() const override { return "fake"; }
    std::string key() const override { return "fake"; }
    CompiledKernel compile(const Kernel& kernel) const override {
        CompiledKernel compiled;
        compiled.name = kernel.name;
        compiled.measured.known = true;
        compiled.measured.registers = 32;
        measure_(kernel, compiled.measured);
        return compiled;
    }
    const GpuArch* limits() const override { return &arch_; }

private:
    const GpuArch& arch_;
    Measure measure_;
};

Program compiled_with(const KernelCompiler& compiler, Program program) {
    CompileOptions options;
    options.use_cache = false;
    const std::vector<TakenKernel> taken =
        drive(compiler, program.kernels, program.limits, options);
    for (size_t i = 0; i < taken.size(); ++i) program.kernels[i] = taken[i].kernel;
    return program;
}

// Of gate and up of a prompt; 0 for other kernels.
int64_t size_of(const Kernel& kernel) {
    if (kernel.kind != planner::KernelKind::kNormGateUp || kernel.form != KernelForm::kGemm)
        return 0;
    return kernel.tile.tokens * kernel.tile.rows;
}

int64_t largest_of(const Program& program) {
    int64_t largest = 0;
    for (const Kernel& kernel : program.kernels) largest = std::max(largest, size_of(kernel));
    return largest;
}

// The text and arguments of every launch, in order.
std::vector<std::string> launches_of(const Program& program) {
    std::vector<std::string> launches;
    for (const auto* phase : {&program.prefill, &program.decode})
        for (const Instruction& i : *phase) {
            const Kernel& kernel = program.kernels[static_cast<size_t>(i.kernel)];
            launches.push_back(kernel.source);
            launches.push_back(std::to_string(kernel.launch.constant_args));
            for (const Arg& arg : i.args)
                launches.push_back(arg.name + " " + std::to_string(arg.id));
        }
    return launches;
}

}  // namespace

TEST_CASE("a tile that was taken in compiling is the plan's, saved and generated again",
          "[codegen]") {
    for (const char* name : {"gfx942", "sm_90a"}) {
        CAPTURE(name);
        const GpuArch& arch = gpu_arch(name);
        planner::Plan plan = test::plan_for_arch("tinyllama-1.1b", arch, 1);
        const planner::Plan asked = plan;
        const Program before = generate_program(plan, planner::DeviceId(0));
        check_tiles(plan, before);
        const int64_t largest = largest_of(before);
        REQUIRE(largest > 0);
        const FakeCompiler compiler(arch, [&](const Kernel& kernel, Resources& r) {
            if (size_of(kernel) == largest) r.registers = arch.registers_per_thread + 1;
        });
        const Program after = compiled_with(compiler, before);
        CHECK_THROWS_WITH(check_tiles(plan, after), Catch::Contains("has not its step's tile"));

        CHECK(take_tiles(after, plan));
        CHECK_FALSE(take_tiles(after, plan));
        check_tiles(plan, after);
        CHECK(planner::find_violations(plan).empty());
        int shrunk = 0;
        for (size_t i = 0; i < plan.prefill.steps.size(); ++i) {
            const auto* was = asked.prefill.steps[i].compute();
            const auto* is = plan.prefill.steps[i].compute();
            if (was && was->tile != is->tile) ++shrunk;
        }
        CHECK(shrunk == 22);  // gate and up of each layer
        CHECK(largest_of(after) < largest);
        // What the plan says now gives the same kernels, and so it does when it was saved.
        const planner::Plan loaded = planner::parse_plan(planner::serialize_plan(plan), "memory");
        for (const planner::Plan* p : {&std::as_const(plan), &loaded})
            CHECK(launches_of(generate_program(*p, planner::DeviceId(0))) == launches_of(after));
    }
}

TEST_CASE("of the tiles that spill the one that spills least is taken, of three", "[codegen]") {
    const GpuArch& arch = gpu_arch("gfx942");
    const Program program = test::program_for("tinyllama-1.1b", arch, 1);
    std::map<planner::KernelKind, std::vector<planner::Tile>> tried;
    const std::vector<int64_t> spills{12, 8, 16, 4};
    const FakeCompiler compiler(arch, [&](const Kernel& kernel, Resources& r) {
        if (kernel.form != KernelForm::kGemm) return;
        std::vector<planner::Tile>& tiles = tried[kernel.kind];
        r.spill_bytes = spills.at(tiles.size());
        tiles.push_back(kernel.tile);
    });
    for (const Kernel& kernel : program.kernels) {
        if (kernel.form != KernelForm::kGemm || tried.count(kernel.kind) > 0) continue;
        CompileOptions options;
        options.use_cache = false;
        const TakenKernel taken =
            drive(compiler, std::span(&kernel, 1), program.limits, options).front();
        const std::vector<planner::Tile>& tiles = tried.at(kernel.kind);
        REQUIRE(tiles.size() == 3);
        CHECK(taken.kernel.tile == tiles[1]);
        CHECK(taken.object.given_up.size() == 1);
        CHECK_THAT(taken.object.given_up.front(), Catch::Contains("12 bytes spilled"));
    }
    CHECK(tried.size() >= 3);
}
