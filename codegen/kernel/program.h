// SPDX-License-Identifier: Apache-2.0
// The Program of one device: its kernels, and instructions for the plan's steps. Artefact of
// codegen/, a plain value; what the runtime loads and launches. codegen knows a device only as an
// arch name and a table of limits.
//
// Invariants:
// - Instructions of a phase are in step order: one for each Compute step of the device, two where a
//   launch in front prepares a product's activations or takes the single tokens of a prompt's
//   attention, and the launches of each exchange by peer memory that the device takes part in.
// - The arguments of an instruction have the names of its kernel's parameters, in their order.
// - The tile of a kernel is that of each plan step that it computes, after compiling, too.
// - Claimed resources are within the device's limits.
//
// Kernel ABI. Every argument is one 64-bit word (pointer, or integer). GPU kernels take them as
// parameters in this order. Host kernels are
//     extern "C" void ENTRY(const uint64_t* args, int64_t begin, int64_t end, void* scratch);
// and compute work items [begin, end) of [0, grid[0]); items are independent and may run on any
// thread; `scratch` is `shared_bytes` of the calling thread, aligned to 64, which a launch's calls
// on that thread share: its first 8 bytes are zero when the launch begins.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel/arg.h"
#include "codegen/kernel/spec.h"
#include "planner/plan/plan.h"

namespace cleave::codegen {

// A length that depends on the batch: ceil((constant + per_x * x ...) / divisor). A single is a
// token that is alone in its sequence (BatchField::kNumSingles).
struct Extent {
    int64_t constant = 0;
    int64_t per_token = 0;
    int64_t per_output = 0;
    int64_t per_sequence = 0;
    int64_t divisor = 1;
    int64_t most = 0;  // 0: no limit
    int64_t per_single = 0;
    int64_t at(int64_t num_tokens, int64_t num_outputs, int64_t num_sequences,
               int64_t num_singles = 0) const {
        int64_t n = constant + per_token * num_tokens + per_output * num_outputs +
                    per_sequence * num_sequences + per_single * num_singles;
        n = (n + divisor - 1) / divisor;
        return most > 0 && n > most ? most : n;
    }
};

struct Launch {
    // Host: grid[0] is the number of work items.
    std::array<Extent, 3> grid{Extent{1}, Extent{1}, Extent{1}};
    std::array<int, 3> block{1, 1, 1};
    int64_t shared_bytes = 0;  // dynamic shared memory; host: scratch of one thread
    // GPUs: it may begin before the launches in front have ended. Its text waits for them, and lets
    // the next launch begin (codegen/templates/gpu/prelude.cuh, "Launches").
    bool overlaps = false;
    // Bit i: argument i points to weights or tables. No launch writes them, so they may be read
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

// Which of several forms a kernel of its kind has; of GPUs.
enum class KernelForm : uint8_t {
    kPlain,  // all others, and all of hosts
    kGemv,
    kGemm,
    kDecodeAttention,
    kPrefillAttention
};

// What the kernel of a GPU's step was written from: enough to write it with another tile.
struct GpuOrigin {
    KernelSpec spec;
    GpuTarget target;                      // its tile is the kernel's
    std::optional<planner::Tile> smaller;  // the next smaller tile; none where this is the last
};

struct Kernel {
    std::string name;  // "norm_qkv_rope_append.3f2a", unique in the program; the entry's name too
    planner::KernelKind kind = planner::KernelKind::kOpaque;  // kOpaque: computes no step
    KernelForm form = KernelForm::kPlain;
    std::string source;  // opens with a comment: fused operators, shapes, dtype, launch, hash
    std::string hash;    // of the source without that comment
    std::vector<std::string> parameters;  // names, in order
    Launch launch;
    Resources claimed;
    std::vector<std::string> fused;  // operator kinds, in order
    planner::Tile tile;
    std::optional<GpuOrigin> origin;
};

struct Instruction {
    planner::StepId step;
    int kernel = -1;  // of Program::kernels
    std::vector<Arg> args;
    // The launch of a prompt's attention that takes tokens alone in their sequences: tokens,
    // outputs and sequences of its grid and its arguments are these.
    bool of_singles = false;
    // In place of `kernel` and `args` in decode passes of at most so many tokens: the first that
    // holds them. In the order of Compute::narrow.
    struct Narrow {
        int64_t tokens = 0;
        int kernel = -1;
        std::vector<Arg> args;
    };
    std::vector<Narrow> narrow;
};

struct Program {
    planner::DeviceId device;
    std::string arch;  // "sm_80"; "simt:sm_80" where the CPU imitates it
    // Of the device, which may be less than its arch has; 0: as the arch.
    planner::DeviceLimits limits;
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
    // The larger tiles whose objects asked for more than there is, each with the reason.
    std::vector<std::string> given_up;
};

}  // namespace cleave::codegen
