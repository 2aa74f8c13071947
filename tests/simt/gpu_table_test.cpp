// SPDX-License-Identifier: Apache-2.0
// The kernel table through a driver: on the GPU that CLEAVE_TEST_GPU names ("cuda[0]"), with the
// compiler that a run would use, every row between guard words; the leaves of the prelude, each
// matrix instruction among them; and exchanges between logical devices of that card. A sample of
// them on the recording fake, so that the way there is proved without a GPU.
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "codegen/compile/compiler.h"
#include "planner/machine/build_machine.h"
#include "runtime/cards/open_devices.h"
#include "tests/simt/instruction_checks.h"
#include "tests/simt/kernel_case.h"
#include "tests/simt/peer_rig.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

constexpr size_t kCompiledTogether = 64;  // rows, on all cores

struct OpenedGpu {
    std::unique_ptr<runtime::Device> device;
    std::string arch;
    codegen::CompileOptions options;
    bool is_down = false;  // after a fault nothing more can be asked of it

    // What was wrong with each row, run between guard words.
    std::vector<std::string> faults_of(std::vector<KernelCase>& cases) {
        std::vector<std::string> faults;
        codegen::Program program;
        program.arch = arch;
        for (const KernelCase& c : cases) program.kernels.push_back(make_kernel(c, {arch, 8, {}}));
        codegen::CompiledProgram compiled;
        try {
            compiled = codegen::compile(program, options);
        } catch (const std::exception& error) {
            return {error.what()};  // it names the kernel; the others of these rows are not run
        }
        for (size_t i = 0; i < cases.size() && !is_down; ++i) {
            const codegen::Kernel& kernel = compiled.program.kernels[i];
            // The last one said is the one that never ended, should the test be ended for its time.
            if (std::getenv("CLEAVE_TEST_GPU")) fmt::print(stderr, "{}\n", cases[i].name);
            try {
                device->load({std::move(compiled.objects[i])});
                const Outcome outcome = run_on_device(cases[i], kernel, *device);
                if (!outcome.wrong.empty()) faults.push_back(cases[i].name + ": " + outcome.wrong);
            } catch (const DeviceError& error) {
                faults.push_back(cases[i].name + ": " + error.what());
                is_down = true;
            }
        }
        return faults;
    }
};

OpenedGpu open_gpu(const std::string& name, const std::string& compiler) {
    planner::Plan plan;
    plan.machine = cleave::test::machine_at_hand(name);
    runtime::Drivers drivers;
    auto device = std::move(runtime::open_devices(plan, drivers, {}).front());
    codegen::CompileOptions options;
    options.gpu_compiler = compiler;
    return {std::move(device), plan.machine.devices[0].arch, options, false};
}

// Four logical devices of the card, which exchange values over its memory.
PeerRig logical_devices(const std::string& card, const std::string& compiler, DType activations) {
    planner::Plan plan;
    plan.machine = cleave::test::machine_at_hand(card + "/0-3");
    runtime::Drivers drivers;
    const std::string arch = plan.machine.devices[0].arch;
    codegen::CompileOptions options;
    options.gpu_compiler = compiler;
    const auto compile = [arch, options](const codegen::Kernel& kernel) {
        codegen::Program program;
        program.arch = arch;
        program.kernels = {kernel};
        return codegen::compile(program, options).objects.at(0);
    };
    return PeerRig(runtime::open_devices(plan, drivers, {}), arch, compile,
                   {.activations = activations, .in_step = true});
}

std::vector<std::string> faults_of_exchanges(const std::string& card, const std::string& compiler) {
    std::vector<std::string> faults;
    const auto check = [&](const std::string& name, DType activations, const auto& wrong_in) {
        PeerRig rig = logical_devices(card, compiler, activations);
        if (const std::string wrong = wrong_in(rig); !wrong.empty())
            faults.push_back(name + ": " + wrong);
    };
    const Sum sums[] = {
        {2, {0, 1}, 64, 1, true, false, DType::kF32},
        {3, {0, 2}, 96, 40, true, false, DType::kF16},
        {4, {0, 1, 3}, 128, 33, true, true, DType::kBF16},
        {4, {0, 1, 2, 3}, 36, 33, false, true, DType::kF32},
        {4, {0, 1, 2, 3}, 300, 8, true, false, DType::kF32, NormBehind{DType::kF16, 64, 2e-6}},
        {3, {0, 2}, 600, 10, true, false, DType::kF16, NormBehind{DType::kBF16, 128, 6e-4}}};
    for (const Sum& s : sums)
        check(fmt::format("sum of {} for {}", s.sources.size(), s.members), s.dtype,
              [&](PeerRig& rig) { return wrong_in_sum(rig, s, 8); });
    check("gather", DType::kF32, [](PeerRig& rig) { return wrong_in_gather(rig, 3); });
    check("meeting", DType::kF32, wrong_in_meeting);
    check("absence", DType::kF32, [](PeerRig& rig) { return wrong_in_absence(rig); });
    return faults;
}

// What was wrong, by row; every nth one.
std::vector<std::string> faults_of_table(OpenedGpu& gpu, size_t every) {
    std::vector<std::function<KernelCase()>> rows = all_cases();
    for (auto& row : warpgroup_cases()) rows.push_back(row);
    std::vector<std::string> faults;
    for (size_t i = 0; i < rows.size() && !gpu.is_down;) {
        std::vector<KernelCase> cases;
        for (; i < rows.size() && cases.size() < kCompiledTogether; i += every)
            cases.push_back(rows[i]());
        for (std::string& fault : gpu.faults_of(cases)) faults.push_back(std::move(fault));
    }
    return faults;
}

}  // namespace

TEST_CASE("every kernel of the table is right on the GPU", "[simt][gpu]") {
    const char* name = std::getenv("CLEAVE_TEST_GPU");
    if (!name) CLEAVE_SKIP("CLEAVE_TEST_GPU names no GPU (tools/gpu-check does)");
    OpenedGpu gpu = open_gpu(name, "");
    CHECK(faults_of_table(gpu, 1) == std::vector<std::string>{});
}

TEST_CASE("every matrix instruction and leaf of the prelude is right on the GPU", "[simt][gpu]") {
    const char* name = std::getenv("CLEAVE_TEST_GPU");
    if (!name) CLEAVE_SKIP("CLEAVE_TEST_GPU names no GPU (tools/gpu-check does)");
    OpenedGpu gpu = open_gpu(name, "");
    CHECK(wrong_in_instructions(codegen::gpu_arch(gpu.arch),
                                on_device(*gpu.device, gpu.arch, "")) == "");
}

TEST_CASE("every exchange is right between logical devices of the GPU", "[simt][gpu]") {
    const char* name = std::getenv("CLEAVE_TEST_GPU");
    if (!name) CLEAVE_SKIP("CLEAVE_TEST_GPU names no GPU (tools/gpu-check does)");
    CHECK(faults_of_exchanges(name, "") == std::vector<std::string>{});
}

TEST_CASE("matrix instructions and leaves of the prelude are right through a driver", "[simt]") {
    const cleave::test::InstalledFake fake(planner::DeviceKind::kCuda);
    {
        OpenedGpu gpu = open_gpu("cuda[0]", "simt");
        CHECK(wrong_in_instructions(codegen::gpu_arch(gpu.arch),
                                    on_device(*gpu.device, gpu.arch, "simt")) == "");
    }
    CHECK(fake.alive() == 0);
}

TEST_CASE("exchanges are right through a driver, on streams that run on their own", "[simt]") {
    const cleave::test::InstalledFake fake(planner::DeviceKind::kCuda);
    fake.live();
    CHECK(faults_of_exchanges("cuda[0]", "simt") == std::vector<std::string>{});
    CHECK(fake.alive() == 0);
}

TEST_CASE("kernels of the table are right through a driver, and what they spoil is found",
          "[simt]") {
    const cleave::test::InstalledFake fake(planner::DeviceKind::kCuda);
    {
        OpenedGpu gpu = open_gpu("cuda[0]", "simt");
        CHECK(faults_of_table(gpu, 53) == std::vector<std::string>{});
        std::vector<KernelCase> cases{all_cases()[0]()};
        cases[0].results[0].want[0] += 1;
        CHECK(gpu.faults_of(cases).size() == 1);
    }
    CHECK(fake.alive() == 0);
}
