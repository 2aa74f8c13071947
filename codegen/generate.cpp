// SPDX-License-Identifier: Apache-2.0
#include "codegen/generate.h"

#include <variant>

#include "codegen/gpu/program.h"
#include "codegen/host/program.h"
#include "codegen/kernel/occupancy.h"
#include "planner/verify/verify.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

// Calls `act` with each tile of the device's Compute steps and the kernel that has it; not with
// what prepares a product's activations, which has a tile of its own.
template <class Plan, class Act>
void for_each_tile(Plan& plan, const Program& program, Act act) {
    for (const bool is_prefill : {true, false}) {
        auto& phase = is_prefill ? plan.prefill : plan.decode;
        for (const Instruction& i : is_prefill ? program.prefill : program.decode) {
            const Kernel& kernel = program.kernels[static_cast<size_t>(i.kernel)];
            auto* compute = std::get_if<planner::Compute>(&phase.steps[i.step.index()].action);
            if (!compute || kernel.kind != compute->kernel) continue;
            if (i.of_singles) {
                act(compute->narrow.at(0).tile, kernel);
                continue;
            }
            act(compute->tile, kernel);
            for (size_t n = 0; n < i.narrow.size(); ++n)
                act(compute->narrow.at(n).tile,
                    program.kernels[static_cast<size_t>(i.narrow[n].kernel)]);
        }
    }
}

}  // namespace

Program generate_program(const planner::Plan& plan, planner::DeviceId device, bool reproducible) {
    const planner::DeviceInfo& info = plan.machine.device(device);
    if (info.kind == planner::DeviceKind::kHost)
        return generate_host_program(plan, device, reproducible);
    if (find_gpu_arch(info.arch)) return generate_gpu_program(plan, device, reproducible);
    throw UserError(
        "no kernels can be generated for {} (kind {}, arch '{}'): kernels exist for devices of "
        "kind host and for GPU architectures ({}); plan for $devices 'host[0-{}]' to run, or use "
        "$plan_only, which needs no kernels",
        info.name, planner::device_kind_name(info.kind), info.arch, gpu_arch_names(),
        plan.machine.devices.empty() ? 0 : plan.machine.devices.size() - 1);
}

std::vector<CompiledProgram> compile_plan(planner::Plan& plan, const CompileOptions& options) {
    std::vector<Program> programs;
    std::vector<size_t> wanted;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d) {
        if (!options.devices.empty() && !options.devices.at(d)) continue;
        wanted.push_back(d);
        programs.push_back(generate_program(plan, planner::DeviceId(d), options.reproducible));
    }
    std::vector<CompiledProgram> compiled = compile(programs, options);
    bool changed = false;
    for (const CompiledProgram& one : compiled) changed = take_tiles(one.program, plan) || changed;
    if (changed) planner::verify_plan(plan);
    std::vector<CompiledProgram> by_device(plan.machine.devices.size());
    for (size_t i = 0; i < wanted.size(); ++i) by_device[wanted[i]] = std::move(compiled[i]);
    return by_device;
}

bool take_tiles(const Program& program, planner::Plan& plan) {
    bool changed = false;
    for_each_tile(plan, program, [&](planner::Tile& tile, const Kernel& kernel) {
        changed = changed || tile != kernel.tile;
        tile = kernel.tile;
    });
    return changed;
}

void check_tiles(const planner::Plan& plan, const Program& program) {
    for_each_tile(plan, program, [](const planner::Tile& tile, const Kernel& kernel) {
        CLEAVE_CHECK(kernel.tile == tile) << kernel.name << " has not its step's tile";
    });
}

}  // namespace cleave::codegen
