// SPDX-License-Identifier: Apache-2.0
// The kernel table through a driver: on the GPU that CLEAVE_TEST_GPU names ("cuda[0]"), with the compiler that a run would use,
// every row between guard words; and a sample of it on the recording fake, so that the way there is proved without a GPU.
#include <cstdlib>

#include "codegen/compiler.h"
#include "runtime/open_devices.h"
#include "tests/runtime/fake_gpus.h"
#include "tests/simt/kernel_case.h"
#include "tests/support/test.h"

using namespace cleave;
using namespace cleave::test;

namespace {

struct OpenedGpu {
    std::unique_ptr<runtime::Device> device;
    std::string arch;
    codegen::CompileOptions options;

    // The kernel as it runs there, loaded: with a smaller tile where the compiled object asked for one.
    codegen::Kernel load(const KernelCase& c) const {
        codegen::Program program;
        program.arch = arch;
        program.kernels = {make_kernel(c, {arch, 8, {}})};
        std::vector<codegen::CompiledKernel> compiled = codegen::compile_program(program, options);
        codegen::Kernel kernel = compiled[0].instead ? *compiled[0].instead : program.kernels[0];
        device->load(std::move(compiled));
        return kernel;
    }
};

OpenedGpu open_gpu(const std::string& name, const std::string& compiler) {
    planner::Plan plan;
    plan.machine = planner::build_machine(planner::parse_devices(name), planner::read_host_facts(),
                                          &runtime::real_gpus());
    auto device = std::move(runtime::open_devices(plan, {}).front());
    codegen::CompileOptions options;
    options.gpu_compiler = compiler;
    return {std::move(device), plan.machine.devices[0].arch, options};
}

// What was wrong, by row; every nth one.
std::vector<std::string> faults_of_table(OpenedGpu& gpu, size_t every) {
    std::vector<std::function<KernelCase()>> rows = all_cases();
    for (auto& row : warpgroup_cases()) rows.push_back(row);
    std::vector<std::string> faults;
    for (size_t i = 0; i < rows.size(); i += every) {
        KernelCase c = rows[i]();
        const codegen::Kernel kernel = gpu.load(c);
        const Outcome outcome = run_on_device(c, kernel, *gpu.device);
        if (!outcome.wrong.empty()) faults.push_back(c.name + ": " + outcome.wrong);
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
        KernelCase c = all_cases()[0]();
        const codegen::Kernel kernel = gpu.load(c);
        c.results[0].want[0] += 1;
        CHECK(run_on_device(c, kernel, *gpu.device).wrong != "");
    }
    CHECK(fake.alive() == 0);
}
