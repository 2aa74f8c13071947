// SPDX-License-Identifier: Apache-2.0
// The Program of one device: its kernels and instructions for each of the plan's Compute steps.
// Artefact of codegen/; what the runtime loads and launches. codegen knows a device only as an arch
// name and a table of limits. `cleave emit` prints exactly `Kernel::source`, which is the text the
// compiler gets.
//
// Invariants: instructions of a phase stand in step order: one per Compute step of this device, two
// where a prompt's activations are prepared for a product (prepare_activations.h), and the launches
// of each communication step that its kernels take part in (what goes by peer memory), in the order
// in which they run; equal kernels (same specialisation) exist once; claimed resources are within
// the device's limits.
//
// Kernel ABI. Every argument is one 64-bit word (pointer, or integer). GPU kernels take them as
// parameters in this order. Host kernels are
//     extern "C" void ENTRY(const uint64_t* args, int64_t begin, int64_t end, void* scratch);
// and compute work items [begin, end) of [0, grid[0]); items are independent and may run on any
// thread; `scratch` is `shared_bytes` of the calling thread, aligned to 64.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::codegen {

// A length that depends on the batch: ceil((constant + per_x * x ...) / divisor).
struct Extent {
    int64_t constant = 0;
    int64_t per_token = 0;
    int64_t per_output = 0;
    int64_t per_sequence = 0;
    int64_t divisor = 1;
    int64_t most = 0;  // 0: no limit
    int64_t at(int64_t num_tokens, int64_t num_outputs, int64_t num_sequences) const {
        int64_t n = constant + per_token * num_tokens + per_output * num_outputs +
                    per_sequence * num_sequences;
        n = (n + divisor - 1) / divisor;
        return most > 0 && n > most ? most : n;
    }
};

// The batch as every device has it: int32 arrays and counts. The key of a token sees positions 0 ..
// its own in its slot of the KV slab.
enum class BatchField : uint8_t {
    kTokenIds,        // [num_tokens]
    kPositions,       // [num_tokens]
    kSlots,           // [num_tokens], cache slot of the token's sequence
    kSequenceStarts,  // [num_sequences + 1], first token of each sequence in this pass
    kOutputRows,      // [num_outputs], tokens whose logits are wanted
    kNumTokens,       // counts: passed by value
    kNumOutputs,
    kNumSequences,
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
    int32_t id =
        -1;  // PlacedId, WeightShardId, RopeShardId, KvSlabId, BufferId or DeviceId, by kind
    PeerField peer = PeerField::kArea;
    BatchField field = BatchField::kNumTokens;
    int64_t immediate = 0;
    std::string name;  // of the parameter, as the stub spells it
};

struct Launch {
    std::array<Extent, 3> grid{Extent{1}, Extent{1},
                               Extent{1}};  // host: grid[0] is the number of work items
    std::array<int, 3> block{1, 1, 1};
    int64_t shared_bytes = 0;  // dynamic shared memory; host: scratch of one thread
    // GPUs: the text lets the next launch begin and itself waits for those before it, so that it
    // may begin before they have ended (codegen/templates/gpu/prelude.cuh, "Launches").
    bool overlaps = false;
    // Bit i: argument i points to weights or tables, which no launch writes: all that it may read
    // before that wait.
    uint64_t constant_args = 0;
};

struct Resources {
    int64_t shared_bytes = 0;
    int64_t registers = 0;    // of a thread
    int64_t spill_bytes = 0;  // of a thread: registers that went to memory
    int64_t stack_bytes = 0;  // of a thread, spills included
    int64_t code_bytes = 0;
    bool known = false;
};

struct Kernel {
    std::string name;  // "norm_qkv_rope_append.3f2a", unique in the program; the entry's name too
    planner::KernelKind kind = planner::KernelKind::kOpaque;
    std::string
        source;        // opens with a comment: fused operators, shapes, dtype, device, launch, hash
    std::string hash;  // of the source without that comment
    Launch launch;
    Resources claimed;
    std::vector<std::string> fused;  // operator kinds, in order
    planner::Tile tile;
    // Of GPUs: the same kernel, taking the same arguments, with the next smaller tile; empty where
    // there is none.
    std::function<Kernel()> smaller;
};

struct Instruction {
    planner::StepId step;
    int kernel = -1;  // of Program::kernels
    std::vector<Arg> args;
};

struct Program {
    planner::DeviceId device;
    std::string arch;
    planner::DeviceLimits
        limits;  // of the device, which may be less than its arch has; 0: as the arch
    std::vector<Kernel> kernels;
    std::vector<Instruction> prefill, decode;
    // Before the first pass, on a device that exchanges by peer memory: meets the others. Its step
    // is none.
    std::optional<Instruction> meeting;
    // Of the output device of a plan with a buffer for them (BufferRole::kChosenTokens): after a
    // pass, the largest logit's index of each output goes there. Its step is none, its logits are
    // its phase's output (a value whose id is none).
    std::optional<Instruction> greedy;
};

// What a compiler made of a kernel.
struct CompiledKernel {
    std::string name;  // entry
    std::vector<std::byte> object;
    Resources measured;
    std::string compiler;  // "clang 19.1.7 (in-process)"
    bool from_cache = false;
    // Of GPUs: matrix instructions by name, counted in `counted_in` ("disassembly" or "ptx"; empty:
    // not counted).
    std::map<std::string, int64_t> matrix_instructions;
    std::string counted_in;
    // Where the object of the kernel's own tile asked for more than there is: the kernel that was
    // compiled instead, and each tile that was given up, with the reason.
    std::shared_ptr<const Kernel> instead;
    std::vector<std::string> given_up;
};

}  // namespace cleave::codegen
