// SPDX-License-Identifier: Apache-2.0
#include "tests/codegen/support/plan_programs.h"

#include <algorithm>
#include <map>

#include "codegen/compile/vendor.h"
#include "codegen/generate.h"
#include "models/llama_graph.h"
#include "models/shapes.h"
#include "planner/machine/build_machine.h"
#include "planner/planner.h"
#include "tests/codegen/support/kernel_runner.h"

namespace cleave::test {

namespace {

// The catalogue's devices of an arch; for an arch without one, another with its limits.
std::string model_of(std::string_view arch) {
    static const std::map<std::string_view, const char*> kModels = {
        {"sm_80", "a100-80"}, {"sm_86", "a40"},     {"sm_89", "rtx4090"}, {"sm_90a", "h100"},
        {"sm_100", "b200"},   {"gfx90a", "mi250x"}, {"gfx942", "mi300x"}};
    auto at = kModels.find(arch);
    return at == kModels.end() ? "mi300x" : at->second;
}

}  // namespace

planner::Plan plan_for_arch(const std::string& shape, const codegen::GpuArch& arch, int devices) {
    importer::Graph graph =
        models::build_llama_graph(models::find_shape(shape).value(), DType::kBF16);
    std::string list = "sim:" + model_of(arch.name) + "[0-" + std::to_string(devices - 1) + "]";
    planner::Machine machine =
        planner::build_machine(planner::parse_devices(list), planner::HostFacts{});
    for (planner::DeviceInfo& device : machine.devices) {
        device.memory_bytes = int64_t{192} << 30;  // plans that do not fit are of no interest here
        if (device.arch == arch.name) continue;
        device.arch = arch.name;
        device.limits.shared_memory_per_block = arch.shared_bytes;
        device.limits.registers_per_block = arch.registers;
        device.limits.max_threads_per_block = arch.max_threads;
        device.limits.warp_width = arch.warp_width;
    }
    planner::Workload workload;
    workload.context = 4096;
    workload.prompt_tokens = 512;
    planner::PlanOptions options;
    options.tensor_parallel = devices;
    return planner::make_plan(graph, machine, workload, options);
}

codegen::Program program_for(const std::string& shape, const codegen::GpuArch& arch, int devices) {
    return codegen::generate_program(plan_for_arch(shape, arch, devices), planner::DeviceId(0));
}

codegen::CompileOptions through(const std::string& compiler) {
    codegen::CompileOptions options;
    options.gpu_compiler = compiler;
    options.cache_dir = test_cache();
    return options;
}

std::string absence(const std::string& compiler) {
    if (compiler == "nvrtc") return codegen::nvrtc_info({}).reason;
    if (compiler == "hiprtc") return codegen::hiprtc_info({}).reason;
    return "";
}

void KernelTotals::add(const codegen::CompiledKernel& kernel) {
    const codegen::Resources& r = kernel.measured;
    ++kernels;
    shrunk += !kernel.given_up.empty();
    spilling += r.spill_bytes > 0;
    registers = std::max(registers, r.registers);
    shared = std::max(shared, r.shared_bytes);
    spills = std::max(spills, r.spill_bytes);
}

}  // namespace cleave::test
