// SPDX-License-Identifier: Apache-2.0
// The kernel table through a driver: on the GPU that CLEAVE_TEST_GPU names ("cuda[0]"), with the compiler that a run would use,
// every row between guard words; and a sample of it on the recording fake, so that the way there is proved without a GPU.
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "codegen/compiler.h"
#include "runtime/open_devices.h"
#include "tests/runtime/fake_gpus.h"
#include "tests/simt/kernel_case.h"
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
        std::vector<codegen::CompiledKernel> compiled;
        try {
            compiled = codegen::compile_program(program, options);
        } catch (const std::exception& error) {
            return {error.what()};  // it names the kernel; the others of these rows are not run
        }
        for (size_t i = 0; i < cases.size() && !is_down; ++i) {
            // With a smaller tile where the compiled object asked for one.
            const codegen::Kernel kernel =
                compiled[i].instead ? *compiled[i].instead : program.kernels[i];
            // The last one said is the one that never ended, should the test be ended for its time.
            if (std::getenv("CLEAVE_TEST_GPU")) fmt::print(stderr, "{}\n", cases[i].name);
            try {
                device->load({std::move(compiled[i])});
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
    plan.machine = planner::build_machine(planner::parse_devices(name), planner::read_host_facts(),
                                          &runtime::real_gpus());
    auto device = std::move(runtime::open_devices(plan, {}).front());
    codegen::CompileOptions options;
    options.gpu_compiler = compiler;
    return {std::move(device), plan.machine.devices[0].arch, options, false};
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

TEST_CASE("kernels of the table are right through a driver, and what they spoil is found",
          "[simt]") {
    const runtime::test::InstalledFake fake(planner::DeviceKind::kCuda);
    {
        OpenedGpu gpu = open_gpu("cuda[0]", "simt");
        CHECK(faults_of_table(gpu, 53) == std::vector<std::string>{});
        std::vector<KernelCase> cases{all_cases()[0]()};
        cases[0].results[0].want[0] += 1;
        CHECK(gpu.faults_of(cases).size() == 1);
    }
    CHECK(fake.alive() == 0);
}
