// SPDX-License-Identifier: Apache-2.0
// The argument of a launch before addresses are known: what it points to, by ids of the plan, or a
// number. Each kind has one maker here. An argument's name is that of the kernel's parameter:
// KernelTable compares them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::codegen {

// The batch as every device has it: int32 arrays and counts. A token sees positions 0 .. its own of
// its slot.
enum class BatchField : uint8_t {
    kTokenIds,        // [num_tokens]
    kPositions,       // [num_tokens]
    kSlots,           // [num_tokens], the sequence's row of the block table
    kSequenceStarts,  // [num_sequences + 1], first token of each sequence in this pass
    kOutputRows,      // [num_outputs], tokens whose logits are wanted
    kBlocks,          // [batch, blocks_per_slot], the block table, on devices with KV slabs
    kNumTokens,       // counts: passed by value
    kNumOutputs,
    kNumSequences,
    kNumSingles,  // sequences of one token before the first of several: tokens [0, num_singles)
};

enum class ArgKind : uint8_t {
    kValue,
    kWeight,
    kRopeTable,
    kKv,
    kScratch,
    kBatch,
    kImmediate,
    kPeer
};

// What a kernel needs of another device, or of its own, to exchange values by peer memory
// (planner/cost/peer_exchange.h).
enum class PeerField : uint8_t {
    kArea,          // payloads that the device sends
    kSignals,       // signals of this device
    kHere,          // the device's row of this device's signals
    kThere,         // this device's row of the device's
    kMailbox,       // runtime/device/device.h
    kLimit,         // nanoseconds of one wait
    kMeetingLimit,  // of a wait in Program::meeting
};

struct Arg {
    ArgKind kind = ArgKind::kImmediate;
    // PlacedId, WeightShardId, RopeShardId, KvSlabId, BufferId or DeviceId, by kind.
    int32_t id = -1;
    PeerField peer = PeerField::kArea;
    BatchField field = BatchField::kNumTokens;
    int64_t immediate = 0;
    std::string name;  // of the parameter
};

inline Arg make_arg(ArgKind kind, int32_t id, std::string name) {
    Arg arg;
    arg.kind = kind;
    arg.id = id;
    arg.name = std::move(name);
    return arg;
}
inline Arg value_arg(planner::PlacedId id, std::string name) {
    return make_arg(ArgKind::kValue, id.value, std::move(name));
}
inline Arg weight_arg(planner::WeightShardId id, std::string name) {
    return make_arg(ArgKind::kWeight, id.value, std::move(name));
}
inline Arg scratch_arg(planner::BufferId id, std::string name) {
    return make_arg(ArgKind::kScratch, id.value, std::move(name));
}
inline Arg batch_arg(BatchField field, std::string name) {
    Arg arg = make_arg(ArgKind::kBatch, -1, std::move(name));
    arg.field = field;
    return arg;
}
inline Arg peer_arg(PeerField field, planner::DeviceId device, std::string name) {
    Arg arg = make_arg(ArgKind::kPeer, device.value, std::move(name));
    arg.peer = field;
    return arg;
}
inline Arg immediate_arg(int64_t value, std::string name) {
    Arg arg = make_arg(ArgKind::kImmediate, -1, std::move(name));
    arg.immediate = value;
    return arg;
}

}  // namespace cleave::codegen
