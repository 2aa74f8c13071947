// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/bindings.h"

#include "codegen/generate.h"
#include "planner/cost/peer_exchange.h"
#include "planner/plan/plan_queries.h"
#include "runtime/base/errors.h"

namespace cleave::runtime {

namespace {

using namespace planner;
using codegen::Arg;
using codegen::ArgKind;
using codegen::BatchField;

int64_t count_of(BatchField field, const PassShape& shape) {
    switch (field) {
        case BatchField::kNumTokens: return shape.num_tokens;
        case BatchField::kNumOutputs: return shape.num_outputs;
        case BatchField::kNumSequences: return shape.num_sequences;
        case BatchField::kNumSingles: return shape.num_singles;
        default: break;
    }
    CLEAVE_CHECK(false) << "an array is no count";
    return 0;
}

class Binder {
public:
    Binder(const Plan& plan, DeviceId device, bool is_prefill, const Arenas& arenas,
           const PeerLinks& peers)
        : plan_(plan),
          phase_(plan.phase(is_prefill)),
          device_(device),
          is_prefill_(is_prefill),
          arenas_(arenas),
          peers_(peers) {}

    BoundLaunch bind(const codegen::Instruction& instruction,
                     const codegen::Program& program) const {
        BoundLaunch bound = bind(instruction.step, instruction.kernel, instruction.args, program);
        bound.of_singles = instruction.of_singles;
        for (const codegen::Instruction::Narrow& narrow : instruction.narrow) {
            bound.narrow.push_back(bind(instruction.step, narrow.kernel, narrow.args, program));
            bound.narrow.back().most_tokens = narrow.tokens;
        }
        return bound;
    }

private:
    BoundLaunch bind(StepId step, int index, const std::vector<Arg>& args,
                     const codegen::Program& program) const {
        BoundLaunch bound;
        bound.step = step;
        bound.kernel = index;
        const codegen::Kernel& kernel = program.kernels[static_cast<size_t>(index)];
        bound.launch = &kernel.launch;
        bound.kernel_name = &kernel.name;
        for (const Arg& arg : args) {
            if (arg.kind == ArgKind::kBatch && is_count(arg.field)) {
                bound.patches.push_back({bound.args.size(), arg.field});
            }
            bound.args.push_back(word(arg, step));
        }
        return bound;
    }

    static bool is_count(BatchField field) {
        return field == BatchField::kNumTokens || field == BatchField::kNumOutputs ||
               field == BatchField::kNumSequences || field == BatchField::kNumSingles;
    }

    uint64_t word(const Arg& arg, StepId step) const {
        switch (arg.kind) {
            case ArgKind::kImmediate: return static_cast<uint64_t>(arg.immediate);
            case ArgKind::kBatch: return is_count(arg.field) ? 0 : batch_array(arg.field);
            case ArgKind::kValue:
                return value(step.valid() ? PlacedId(arg.id) : phase_.outputs.front(), step);
            case ArgKind::kWeight: return buffer(at(plan_.weights, arg, step).buffer, arg, step);
            case ArgKind::kRopeTable:
                return buffer(at(plan_.rope_tables, arg, step).buffer, arg, step);
            case ArgKind::kKv: return buffer(at(plan_.kv_slabs, arg, step).buffer, arg, step);
            case ArgKind::kScratch: return buffer(BufferId(arg.id), arg, step);
            case ArgKind::kPeer: return peer(arg.peer, DeviceId(arg.id));
        }
        return 0;
    }

    // Of another device, where it was given access: its rows and this one's
    // (planner/cost/peer_exchange.h).
    uint64_t peer(codegen::PeerField field, DeviceId other) const {
        using codegen::PeerField;
        const auto row = [](DeviceId device) {
            return static_cast<uint64_t>(peer_signal_row(device));
        };
        switch (field) {
            case PeerField::kArea: return arenas_.peers(other).payloads;
            case PeerField::kSignals: return arenas_.peers(device_).signals;
            case PeerField::kHere: return arenas_.peers(device_).signals + row(other);
            case PeerField::kThere: return arenas_.peers(other).signals + row(device_);
            case PeerField::kMailbox: return peers_.mailbox(device_);
            case PeerField::kLimit: return static_cast<uint64_t>(peers_.limit(device_));
            case PeerField::kMeetingLimit:
                return static_cast<uint64_t>(peers_.meeting_limit(device_));
        }
        return 0;
    }

    template <class T>
    const T& at(const std::vector<T>& all, const Arg& arg, StepId step) const {
        CLEAVE_CHECK(arg.id >= 0 && static_cast<size_t>(arg.id) < all.size())
            << step_label(plan_, is_prefill_, step) << " has no '" << arg.name << "' " << arg.id;
        return all[static_cast<size_t>(arg.id)];
    }

    uint64_t value(PlacedId id, StepId step) const {
        CLEAVE_CHECK(id.valid() && id.index() < phase_.values.size())
            << step_label(plan_, is_prefill_, step) << " names value " << id.value
            << ", which is none";
        CLEAVE_CHECK(phase_.values[id.index()].device == device_)
            << step_label(plan_, is_prefill_, step) << " reaches into another device's memory";
        return arenas_.view(phase_, id).address;
    }

    // An absent buffer (empty shard, no scratch) is the null address.
    uint64_t buffer(BufferId id, const Arg& arg, StepId step) const {
        if (!id.valid()) return 0;
        CLEAVE_CHECK(plan_.buffer(id).device == device_)
            << step_label(plan_, is_prefill_, step) << ": '" << arg.name
            << "' lies on another device";
        return arenas_.address(id);
    }

    uint64_t batch_array(BatchField field) const {
        const BatchAddresses& batch = arenas_.batch(device_);
        switch (field) {
            case BatchField::kTokenIds: return batch.token_ids;
            case BatchField::kPositions: return batch.positions;
            case BatchField::kSlots: return batch.slots;
            case BatchField::kSequenceStarts: return batch.sequence_starts;
            case BatchField::kOutputRows: return batch.output_rows;
            case BatchField::kBlocks: return batch.blocks;
            default: break;
        }
        CLEAVE_CHECK(false) << "a count is no array";
        return 0;
    }

    const Plan& plan_;
    const Phase& phase_;
    DeviceId device_;
    bool is_prefill_;
    const Arenas& arenas_;
    const PeerLinks& peers_;
};

}  // namespace

std::vector<BoundLaunch> bind_launches(const Plan& plan, const codegen::Program& program,
                                       bool is_prefill, const Arenas& arenas,
                                       const PeerLinks& peers) {
    codegen::check_tiles(plan, program);
    Binder binder(plan, program.device, is_prefill, arenas, peers);
    std::vector<BoundLaunch> launches;
    for (const codegen::Instruction& instruction : is_prefill ? program.prefill : program.decode) {
        launches.push_back(binder.bind(instruction, program));
    }
    return launches;
}

std::optional<BoundLaunch> bind_meeting(const Plan& plan, const codegen::Program& program,
                                        const Arenas& arenas, const PeerLinks& peers) {
    if (!program.meeting) return std::nullopt;
    return Binder(plan, program.device, true, arenas, peers).bind(*program.meeting, program);
}

std::optional<BoundLaunch> bind_greedy(const Plan& plan, const codegen::Program& program,
                                       bool is_prefill, const Arenas& arenas,
                                       const PeerLinks& peers) {
    if (!program.greedy) return std::nullopt;
    return Binder(plan, program.device, is_prefill, arenas, peers).bind(*program.greedy, program);
}

void launch(Device& device, BoundLaunch& bound, const PassShape& pass) {
    for (BoundLaunch& narrow : bound.narrow)
        if (pass.num_tokens <= narrow.most_tokens) return launch(device, narrow, pass);
    const int64_t singles = pass.num_singles;
    const PassShape shape = bound.of_singles ? PassShape{singles, singles, singles, singles} : pass;
    for (const BoundLaunch::Patch& patch : bound.patches)
        bound.args[patch.arg] = static_cast<uint64_t>(count_of(patch.field, shape));
    std::array<int64_t, 3> grid;
    for (size_t i = 0; i < grid.size(); ++i) {
        grid[i] = bound.launch->grid[i].at(shape.num_tokens, shape.num_outputs, shape.num_sequences,
                                           shape.num_singles);
        if (grid[i] <= 0) return;  // nothing to do, such as logits of no rows
    }
    device.launch(bound.kernel, bound.args, grid, *bound.launch);
}

}  // namespace cleave::runtime
