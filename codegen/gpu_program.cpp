// SPDX-License-Identifier: Apache-2.0
#include "codegen/gpu_program.h"

#include <algorithm>
#include <optional>

#include "codegen/lower_step.h"
#include "codegen/peer_kernels.h"
#include "planner/memory.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

constexpr std::string_view kSimt = "simt:";

Arg batch_arg(BatchField field, std::string name) {
    Arg arg;
    arg.kind = ArgKind::kBatch;
    arg.field = field;
    arg.name = std::move(name);
    return arg;
}

// What attention on GPUs takes beside the arguments of every device.
void add_attention_args(const planner::Compute& compute, std::vector<Arg>& args) {
    Arg count = args.back();
    args.pop_back();
    if (attends_many_tokens(compute.tile)) {
        args.push_back(batch_arg(BatchField::kSequenceStarts, "sequence_starts"));
        args.push_back(batch_arg(BatchField::kNumSequences, "num_sequences"));
    } else if (attention_is_split(compute.tile)) {
        CHECK(compute.scratch.valid()) << "attention splits the keys without scratch";
        Arg scratch;
        scratch.kind = ArgKind::kScratch;
        scratch.id = compute.scratch.value;
        scratch.name = "scratch";
        args.push_back(scratch);
    }
    args.push_back(std::move(count));
}

// What follows a sum by the vendor's library on a device: the residual, added in place.
std::optional<Instruction> lower_residual(const planner::Phase& phase, size_t step,
                                          planner::DeviceId device, GpuTarget target,
                                          KernelTable& kernels) {
    const planner::Collective* c = phase.steps[step].collective();
    if (!c || c->transport != planner::Transport::kVendor || c->epilogue_inputs.empty())
        return std::nullopt;
    const auto member = std::find(c->group.begin(), c->group.end(), device) - c->group.begin();
    if (member == std::ssize(c->group)) return std::nullopt;
    CHECK(c->epilogue_inputs.size() == c->group.size()) << "a residual for each member";
    const auto m = static_cast<size_t>(member);
    const planner::Range columns = phase.values[c->outputs[m].index()].box.back();
    AllReduceSpec spec;
    spec.out = columns.size();
    spec.sources = 1;
    spec.residual = true;
    target.tile = {};
    Instruction instruction;
    instruction.step = planner::StepId(step);
    instruction.kernel = kernels.add(make_gpu_helper(spec, target));
    const auto value = [](planner::PlacedId id, const char* name) {
        Arg arg;
        arg.kind = ArgKind::kValue;
        arg.id = id.value;
        arg.name = name;
        return arg;
    };
    instruction.args = {value(c->outputs[m], "sum"), value(c->epilogue_inputs[m], "residual"),
                        value(c->outputs[m], "out")};
    return instruction;
}

// The choice of tokens after a pass, where the plan has room for them.
std::optional<Instruction> lower_greedy(const planner::Plan& plan, planner::DeviceId device,
                                        GpuTarget target, KernelTable& kernels) {
    const planner::BufferId room = planner::tokens_buffer(plan);
    if (!room.valid() || plan.output_device != device) return std::nullopt;
    const planner::PlacedValue& placed = plan.decode.values[plan.decode.outputs.front().index()];
    const int64_t vocabulary = plan.graph.value(placed.value).shape.back().value;
    const planner::Range columns = placed.box.back();
    CHECK(columns.begin == 0 && (columns.end == vocabulary || columns.end == planner::kWhole))
        << "the output device has all logits";
    target.tile = {};
    Arg logits, tokens;
    logits.kind = ArgKind::kValue;
    logits.name = "logits";
    tokens.kind = ArgKind::kScratch;
    tokens.id = room.value;
    tokens.name = "tokens";
    Instruction instruction;
    instruction.kernel = kernels.add(make_gpu_helper(ArgmaxSpec{vocabulary}, target));
    instruction.args = {std::move(logits), std::move(tokens)};
    return instruction;
}

void generate_phase(const planner::Plan& plan, planner::DeviceId device, bool is_prefill,
                    GpuTarget target, KernelTable& kernels, std::vector<Instruction>& out) {
    const planner::Phase& phase = plan.phase(is_prefill);
    for (size_t i = 0; i < phase.steps.size(); ++i) {
        const planner::Compute* compute = phase.steps[i].compute();
        if (planner::goes_by_peers(phase.steps[i])) {
            for (Instruction& made :
                 lower_exchange(plan, is_prefill, planner::StepId(i), device, target, kernels))
                out.push_back(std::move(made));
        }
        if (std::optional<Instruction> added = lower_residual(phase, i, device, target, kernels))
            out.push_back(std::move(*added));
        if (!compute || compute->device != device) continue;
        StepReader reader(plan, phase, *compute, is_prefill);
        Lowered lowered = lower_step(reader);
        if (std::holds_alternative<AttentionSpec>(lowered.spec))
            add_attention_args(*compute, lowered.args);
        target.tile = compute->tile;
        Instruction instruction;
        instruction.step = planner::StepId(i);
        instruction.kernel =
            kernels.add(make_gpu_kernel(lowered.spec, compute->kernel, reader.fused(), target));
        instruction.args = std::move(lowered.args);
        out.push_back(std::move(instruction));
    }
}

}  // namespace

std::string_view simt_arch_of(std::string_view program_arch) {
    return program_arch.starts_with(kSimt) ? program_arch.substr(kSimt.size()) : std::string_view();
}

std::string_view gpu_arch_of(std::string_view program_arch) {
    std::string_view imitated = simt_arch_of(program_arch);
    return imitated.empty() ? program_arch : imitated;
}

Program generate_gpu_program(const planner::Plan& plan, planner::DeviceId device) {
    const planner::Device& info = plan.machine.device(device);
    Program program;
    program.device = device;
    program.arch = info.arch;
    if (info.kind == planner::DeviceKind::kSimt) program.arch.insert(0, kSimt);
    GpuTarget target;
    target.device = program.arch;
    target.limits = info.limits;
    target.activations = plan.workload.activation_dtype;
    KernelTable kernels(program);
    program.meeting = lower_meeting(plan, device, target, kernels);
    generate_phase(plan, device, true, target, kernels, program.prefill);
    generate_phase(plan, device, false, target, kernels, program.decode);
    program.greedy = lower_greedy(plan, device, target, kernels);
    return program;
}

}  // namespace cleave::codegen
