// SPDX-License-Identifier: Apache-2.0
#include "codegen/gpu/program.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <variant>

#include <fmt/format.h>

#include "codegen/gpu/exchange.h"
#include "codegen/gpu/kernels.h"
#include "codegen/kernel/kernel_table.h"
#include "codegen/kernel/occupancy.h"
#include "codegen/lower/lower_exchange.h"
#include "codegen/lower/lower_step.h"
#include "codegen/lower/prepare_activations.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::codegen {

namespace {

// What attention with that tile takes on GPUs beside the arguments of every device.
void add_attention_args(const planner::Compute& compute, const planner::Tile& tile,
                        std::vector<Arg>& args) {
    Arg count = args.back();
    args.pop_back();
    const bool has_singles = args.back().name == "num_singles";
    if (is_prefill_attention(tile)) {
        args.push_back(batch_arg(BatchField::kSequenceStarts, "sequence_starts"));
        args.push_back(batch_arg(BatchField::kNumSequences, "num_sequences"));
    } else {
        if (has_singles) args.pop_back();
        if (attention_is_split(tile)) {
            CLEAVE_CHECK(compute.scratch.valid()) << "attention splits the keys without scratch";
            args.push_back(scratch_arg(compute.scratch, "scratch"));
        }
    }
    args.push_back(std::move(count));
}

// What follows a sum by the vendor's library on a device: the residual, added in place.
std::optional<Instruction> lower_residual(const planner::Phase& phase, size_t step,
                                          planner::DeviceId device, const GpuTarget& target,
                                          KernelTable& kernels) {
    const planner::Collective* c = phase.steps[step].collective();
    if (!c || c->path != planner::Path::kVendor || c->epilogue_inputs.empty()) return std::nullopt;
    const auto member = std::find(c->group.begin(), c->group.end(), device) - c->group.begin();
    if (member == std::ssize(c->group)) return std::nullopt;
    CLEAVE_CHECK(c->epilogue_inputs.size() == c->group.size()) << "a residual for each member";
    const auto m = static_cast<size_t>(member);
    const planner::Range columns = phase.values[c->outputs[m].index()].box.back();
    AllReduceSpec spec;
    spec.out = columns.size();
    spec.sources = 1;
    spec.residual = true;
    return kernels.launch(
        planner::StepId(step), make_gpu_helper(spec, target),
        {value_arg(c->outputs[m], "source[0]"), value_arg(c->epilogue_inputs[m], "residual"),
         value_arg(c->outputs[m], "out")});
}

// The choice of tokens after a pass, where the plan has room for them.
std::optional<Instruction> lower_greedy(const planner::Plan& plan, planner::DeviceId device,
                                        const GpuTarget& target, KernelTable& kernels) {
    const planner::BufferId room = planner::tokens_buffer(plan);
    if (!room.valid() || plan.output_device != device) return std::nullopt;
    const planner::PlacedValue& placed = plan.decode.values[plan.decode.outputs.front().index()];
    const int64_t vocabulary = plan.graph.value(placed.value).shape.back().value;
    const planner::Range columns = placed.box.back();
    CLEAVE_CHECK(columns.begin == 0 &&
                 (columns.end == vocabulary || columns.end == planner::kWhole))
        << "the output device has all logits";
    return kernels.launch({}, make_gpu_helper(ArgmaxSpec{vocabulary}, target),
                          {value_arg({}, "logits"), scratch_arg(room, "tokens")});
}

// Tokens or rows wanted, tokens, and sequences of the largest launch of a phase, or of one that
// takes so many tokens at most, each of a sequence of its own.
struct LargestLaunch {
    explicit LargestLaunch(int64_t narrow) : tokens(narrow), outputs(narrow), sequences(narrow) {}
    LargestLaunch(const planner::Plan& plan, bool is_prefill)
        : tokens(is_prefill ? plan.workload.max_tokens() : plan.workload.batch),
          outputs(is_prefill ? plan.workload.max_outputs() : plan.workload.batch),
          sequences(plan.workload.batch) {}

    int64_t rows_of(const KernelSpec& spec) const {
        return std::visit(
            [&]<class Spec>(const Spec& s) {
                if constexpr (std::is_same_v<Spec, SelectTokensSpec>) return outputs;
                if constexpr (requires { s.count; })
                    return s.count == RowCount::kOutputs ? outputs : tokens;
                return tokens;
            },
            spec);
    }

    int64_t tokens, outputs, sequences;
};

// The grids that launches really have, after fusion, against the device's.
void check_grids(const planner::Plan& plan, const Program& program, bool is_prefill) {
    constexpr int64_t kMostThreads = UINT32_MAX;
    const planner::DeviceInfo& info = plan.machine.device(program.device);
    const GpuArch* arch = find_gpu_arch(gpu_arch_of(program.arch));
    const auto check = [&](int index, const LargestLaunch& largest) {
        const Kernel& kernel = program.kernels[static_cast<size_t>(index)];
        for (size_t axis = 0; axis < 3; ++axis) {
            const int64_t blocks =
                kernel.launch.grid[axis].at(largest.tokens, largest.outputs, largest.sequences);
            int64_t most = info.limits.max_grid[axis];
            if (arch && planner::vendor_facts(arch->vendor).grid_of_threads)
                most = std::min(most, kMostThreads / kernel.launch.block[axis]);
            if (blocks > most)
                throw UserError(
                    "kernel {} has a grid of {} blocks in {} for {} tokens of a {} pass; {} has at "
                    "most {} there (max_grid_{} of the machine): lower {}",
                    kernel.name, blocks, "xyz"[axis], largest.tokens,
                    is_prefill ? "prompt's" : "decode", info.name, most, "xyz"[axis],
                    is_prefill
                        ? fmt::format("$prefill_chunk (it is {})", plan.workload.prefill_chunk)
                        : fmt::format("$batch (it is {})", plan.workload.batch));
        }
    };
    const LargestLaunch largest(plan, is_prefill);
    for (const Instruction& instruction : is_prefill ? program.prefill : program.decode) {
        check(instruction.kernel,
              instruction.of_singles ? LargestLaunch(plan.workload.batch) : largest);
        for (const Instruction::Narrow& narrow : instruction.narrow)
            check(narrow.kernel, LargestLaunch(narrow.tokens));
    }
    for (const std::optional<Instruction>& instruction : {program.meeting, program.greedy})
        if (instruction) check(instruction->kernel, largest);
}

// Launches of a phase's steps. Layers repeat: a spec is compared where its text, which is far
// longer, would be written and hashed again.
class StepLaunches {
public:
    explicit StepLaunches(KernelTable& kernels) : kernels_(kernels) {}

    // `make`: the kernel, where there is none yet.
    template <class Make>
    Instruction launch(planner::StepId step, std::variant<KernelSpec, PrepareSpec> spec,
                       planner::KernelKind kind, const std::vector<std::string>& fused,
                       const GpuTarget& target, std::vector<Arg> args, Make make) {
        for (const Made& made : made_)
            if (made.kind == kind && made.tile == target.tile &&
                made.max_tokens == target.max_tokens && made.spec == spec && made.fused == fused)
                return kernels_.launch(step, made.kernel, std::move(args));
        Instruction made = kernels_.launch(step, make(), std::move(args));
        made_.push_back(
            {std::move(spec), kind, fused, target.tile, target.max_tokens, made.kernel});
        return made;
    }

private:
    struct Made {
        std::variant<KernelSpec, PrepareSpec> spec;
        planner::KernelKind kind;
        std::vector<std::string> fused;
        planner::Tile tile;
        int64_t max_tokens;
        int kernel;
    };
    KernelTable& kernels_;
    std::vector<Made> made_;
};

// One of a step's launches by its narrow tiles.
Instruction launch_narrow(const StepReader& reader, planner::StepId step,
                          const planner::Compute& compute, const planner::NarrowTile& narrow,
                          GpuTarget target, StepLaunches& launches) {
    Lowered lowered = lower_step(reader);
    if (auto* attention = std::get_if<AttentionSpec>(&lowered.spec)) {
        attention->prefill = false;
        add_attention_args(compute, narrow.tile, lowered.args);
    }
    target.tile = narrow.tile;
    target.max_tokens = narrow.tokens;
    const std::vector<std::string> fused = reader.fused();
    return launches.launch(
        step, lowered.spec, compute.kernel, fused, target, std::move(lowered.args),
        [&] { return make_gpu_kernel(lowered.spec, compute.kernel, fused, target); });
}

// With `narrow`, also the launches by the steps' narrow tiles.
void generate_phase(const planner::Plan& plan, planner::DeviceId device, bool is_prefill,
                    bool narrow, GpuTarget target, KernelTable& kernels,
                    std::vector<Instruction>& out) {
    const planner::Phase& phase = plan.phase(is_prefill);
    const LargestLaunch largest(plan, is_prefill);
    target.context = plan.workload.context;
    StepLaunches launches(kernels);
    for (size_t i = 0; i < phase.steps.size(); ++i) {
        const planner::StepId step(i);
        const planner::Compute* compute = phase.steps[i].compute();
        if (planner::goes_by_peers(phase.steps[i])) {
            for (LoweredExchange& exchange :
                 lower_exchange(plan, is_prefill, step, device, target.activations))
                out.push_back(kernels.launch(step, make_peer_kernel(exchange.spec, target),
                                             std::move(exchange.args)));
        }
        if (std::optional<Instruction> added = lower_residual(phase, i, device, target, kernels))
            out.push_back(std::move(*added));
        if (!compute || compute->device != device) continue;
        StepReader reader(plan, phase, *compute, is_prefill);
        Lowered lowered = lower_step(reader);
        if (std::holds_alternative<AttentionSpec>(lowered.spec))
            add_attention_args(*compute, compute->tile, lowered.args);
        std::vector<std::string> fused = reader.fused();
        if (std::optional<Preparation> first =
                prepare_activations(*compute, target.activations, lowered)) {
            target.tile = {};
            out.push_back(launches.launch(step, first->spec, compute->kernel, {}, target,
                                          std::move(first->args),
                                          [&] { return make_gpu_helper(first->spec, target); }));
            fused = reader.fused_behind_preparation();
        }
        std::vector<Instruction> few;
        for (const planner::NarrowTile& tile : compute->narrow)
            if (narrow)
                few.push_back(launch_narrow(reader, step, *compute, tile, target, launches));
        target.tile = compute->tile;
        target.max_tokens = largest.rows_of(lowered.spec);
        Instruction whole = launches.launch(
            step, lowered.spec, compute->kernel, fused, target, std::move(lowered.args),
            [&] { return make_gpu_kernel(lowered.spec, compute->kernel, fused, target); });
        for (size_t n = 0; n < few.size(); ++n) {
            if (is_prefill) {
                out.push_back(std::move(few[n]));
                out.back().of_singles = true;
            } else {
                whole.narrow.push_back(
                    {compute->narrow[n].tokens, few[n].kernel, std::move(few[n].args)});
            }
        }
        out.push_back(std::move(whole));
    }
}

}  // namespace

Program generate_gpu_program(const planner::Plan& plan, planner::DeviceId device,
                             bool reproducible) {
    const planner::DeviceInfo& info = plan.machine.device(device);
    Program program;
    program.device = device;
    program.arch = info.arch;
    program.limits = info.limits;
    if (info.kind == planner::DeviceKind::kSimt) program.arch.insert(0, kSimtPrefix);
    GpuTarget target;
    target.device = program.arch;
    target.limits = info.limits;
    target.activations = plan.workload.activation_dtype;
    KernelTable kernels(program);
    if (std::optional<LoweredExchange> meeting = lower_meeting(plan, device))
        program.meeting =
            kernels.launch({}, make_peer_kernel(meeting->spec, target), std::move(meeting->args));
    generate_phase(plan, device, true, true, target, kernels, program.prefill);
    generate_phase(plan, device, false, !reproducible, target, kernels, program.decode);
    program.greedy = lower_greedy(plan, device, target, kernels);
    for (bool is_prefill : {true, false}) check_grids(plan, program, is_prefill);
    return program;
}

}  // namespace cleave::codegen
