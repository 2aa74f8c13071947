// SPDX-License-Identifier: Apache-2.0
// What the user wants to run and what they force: the search's other two inputs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan/objective.h"
#include "runtime/base/dtype.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {

// Positions of a block of the KV pool.
inline constexpr int64_t kKvBlock = 16;
// Blocks that hold so many positions of one sequence.
constexpr int64_t kv_blocks(int64_t positions) { return ceil_div(positions, kKvBlock); }

// What a KV cache may be kept in.
inline constexpr std::array kKvDTypes{DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                      DType::kInt8};
constexpr bool is_kv_dtype(DType dtype) {
    for (DType one : kKvDTypes)
        if (one == dtype) return true;
    return false;
}
// Elements of 8 bits are times an f32 scale: each head and position has one for its key and one
// for its value. With a scale for a whole block, an append could change what is written before it,
// and the bits would depend on chunks and on preemption.
constexpr bool has_kv_scales(DType dtype) {
    return dtype == DType::kF8E4M3 || dtype == DType::kInt8;
}
// Bytes of so many positions of one head of one layer: K, V and their scales.
inline int64_t kv_position_bytes(DType dtype, int64_t positions, int64_t head_dim,
                                 int64_t v_head_dim) {
    return dtype_bytes(dtype, positions * (head_dim + v_head_dim)) +
           (has_kv_scales(dtype) ? positions * 2 * dtype_bytes(DType::kF32, 1) : 0);
}

// How products treat their activations on host devices. GPUs have one way, each kernel's own.
enum class ComputeMode : uint8_t {
    kExact,  // f32
    kFast,   // rounded to bf16 where the weights are bf16; where they are integers of 4 or 8 bits
             // in blocks of whole kRoundingGroups, to int8 with a scale for each such group
};
// Features that share a scale of rounded activations.
inline constexpr int64_t kRoundingGroup = 32;

struct Workload {
    // Workload::kv_tokens: all that is left on the devices.
    static constexpr int64_t kAllThatIsLeft = -1;

    int64_t batch = 1;  // sequences at once: rows of the block table
    int64_t prompt_tokens = 512;
    int64_t context = 4096;       // longest sequence, prompt and generated tokens
    int64_t prefill_chunk = 512;  // tokens of all sequences in one prefill pass
    bool all_logits = false;      // logits of every prompt token (--dump-logits, --score)
    std::optional<DType> dtype;   // of weights on devices; default: as stored
    std::optional<DType>
        kv_dtype;  // default: the weights' dtype on GPUs, f32/f16/bf16 as stored on hosts
    DType activation_dtype = DType::kF32;
    // Default: fast where all devices are hosts and that rounds anything.
    std::optional<ComputeMode> compute;
    int64_t kv_tokens = 0;  // that the KV pool has room for; 0: of `batch` whole contexts

    // Blocks of a sequence as long as the context.
    int64_t blocks_per_slot() const { return kv_blocks(context); }
    // Blocks of the KV pool, with block 0, which no sequence owns. At least one context's, which is
    // what kAllThatIsLeft has before the memory is known.
    int64_t pool_blocks() const {
        const int64_t blocks = kv_tokens == 0  ? batch * blocks_per_slot()
                               : kv_tokens > 0 ? kv_blocks(kv_tokens)
                                               : 0;
        return 1 + (blocks > blocks_per_slot() ? blocks : blocks_per_slot());
    }

    // Largest num_tokens of one pass: a prefill chunk, or one token of every sequence.
    int64_t max_tokens() const {
        int64_t chunk = prefill_chunk < batch * context ? prefill_chunk : batch * context;
        return chunk > batch ? chunk : batch;
    }
    int64_t max_outputs() const { return all_logits ? max_tokens() : batch; }
    // The past length at which decode time is quoted.
    int64_t decode_past() const { return prompt_tokens + (context - prompt_tokens) / 2; }
};

struct Pin {
    std::string what;    // "embedding", "lm_head", "layers.0-15"
    std::string device;  // canonical device name
};

struct PlanOptions {
    int tensor_parallel = 0;  // 0: the planner chooses
    int pipeline_stages = 0;
    Objective objective = Objective::kLatency;
    // Whole copies of the model on equal parts of the machine, for objectives that serve many.
    int replicas = 1;  // 0: the planner chooses
    // Where the objective serves many: as many users as there is KV for and the limits allow,
    // whatever the workload's batch is.
    bool most_users = false;
    int64_t max_ttft_ns = 0, max_tpot_ns = 0;  // limits for every user; 0: none
    bool whole_layers = false;                 // stages have operators of whole layers only
    bool use_metis = true;
    int64_t seed = 0;
    std::vector<Pin> pins;
};

}  // namespace cleave::planner
