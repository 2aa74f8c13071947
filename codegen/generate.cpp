// SPDX-License-Identifier: Apache-2.0
#include "codegen/generate.h"

#include "codegen/gpu/program.h"
#include "codegen/host/program.h"
#include "codegen/kernel/occupancy.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

Program generate_program(const planner::Plan& plan, planner::DeviceId device) {
    const planner::DeviceInfo& info = plan.machine.device(device);
    if (info.kind == planner::DeviceKind::kHost) return generate_host_program(plan, device);
    if (find_gpu_arch(info.arch)) return generate_gpu_program(plan, device);
    throw UserError(
        "no kernels can be generated for {} (kind {}, arch '{}'): kernels exist for devices of "
        "kind host and for GPU architectures ({}); plan for $devices host[0-{}] to run, or use "
        "$plan_only, which needs no kernels",
        info.name, planner::device_kind_name(info.kind), info.arch, gpu_arch_names(),
        plan.machine.devices.empty() ? 0 : plan.machine.devices.size() - 1);
}

void adopt_compiled(Program& program, const std::vector<CompiledKernel>& compiled) {
    for (size_t i = 0; i < compiled.size(); ++i) {
        if (!compiled[i].instead) continue;
        Kernel& kernel = program.kernels[i];
        const uint64_t constant_args = kernel.launch.constant_args;  // it takes the same arguments
        kernel = *compiled[i].instead;
        kernel.launch.constant_args = constant_args;
    }
}

}  // namespace cleave::codegen
