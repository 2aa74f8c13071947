// SPDX-License-Identifier: Apache-2.0
#include "codegen/host/program.h"

#include <algorithm>

#include "codegen/host/kernels.h"
#include "codegen/kernel/kernel_table.h"
#include "codegen/lower/lower_step.h"

namespace cleave::codegen {

namespace {

using planner::Compute;

void generate_phase(const planner::Plan& plan, planner::DeviceId device, bool is_prefill,
                    bool reproducible, KernelTable& kernels, std::vector<Instruction>& out) {
    HostTarget target{std::max<int64_t>(plan.machine.device(device).limits.num_compute_units, 1),
                      {},
                      reproducible,
                      plan.workload.compute == planner::ComputeMode::kFast};
    const planner::Phase& phase = plan.phase(is_prefill);
    for (size_t i = 0; i < phase.steps.size(); ++i) {
        const Compute* compute = phase.steps[i].compute();
        if (!compute || compute->device != device) continue;
        StepReader reader(plan, phase, *compute, is_prefill);
        Lowered lowered = lower_step(reader);
        target.tile = compute->tile;
        out.push_back(
            kernels.launch(planner::StepId(i),
                           make_host_kernel(lowered.spec, compute->kernel, reader.fused(), target),
                           std::move(lowered.args)));
    }
}

}  // namespace

Program generate_host_program(const planner::Plan& plan, planner::DeviceId device,
                              bool reproducible) {
    Program program;
    program.device = device;
    program.arch = plan.machine.device(device).arch;
    KernelTable kernels(program);
    generate_phase(plan, device, true, reproducible, kernels, program.prefill);
    generate_phase(plan, device, false, reproducible, kernels, program.decode);
    return program;
}

}  // namespace cleave::codegen
