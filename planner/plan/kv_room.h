// SPDX-License-Identifier: Apache-2.0
// How many blocks a plan's KV pool could have: the devices hold whatever else they need, and each
// block is on all devices that have KV slabs. In: a plan with its memory. Out: the device that
// bounds the pool, and numbers of the pool as users count them.
#pragma once

#include <optional>

#include "planner/plan/plan.h"

namespace cleave::planner {

struct KvBound {
    DeviceId device;         // with the least room; the first of several
    int64_t num_blocks = 0;  // that fit there at most, block 0 among them; 0: nothing is left
};
// Of a plan whose buffers are laid out; none without a KV cache. Exact to the allocation: slabs
// begin at multiples of 256.
std::optional<KvBound> kv_bound(const Plan& plan);

// Positions that sequences can own: block 0 is nobody's.
inline int64_t kv_tokens(int64_t num_blocks) {
    return num_blocks > 1 ? (num_blocks - 1) * kKvBlock : 0;
}
// Sequences as long as the workload's context that are in the pool at once.
inline int64_t whole_sequences(const Plan& plan) {
    return kv_tokens(plan.kv_pool.num_blocks) / (plan.workload.blocks_per_slot() * kKvBlock);
}
// Whether the pool is `batch` whole contexts, as caches without blocks are.
inline bool has_whole_contexts(const Plan& plan) {
    return plan.kv_pool.num_blocks == 0 ||
           plan.kv_pool.num_blocks == 1 + plan.workload.batch * plan.workload.blocks_per_slot();
}

}  // namespace cleave::planner
