// SPDX-License-Identifier: Apache-2.0
// The room of a plan: how far its own placement reaches before a device is full, with more
// sequences, a longer context or a larger KV pool. Nothing is searched: stages, devices and shares
// stay, and steps, tiles and buffers are made for the other workload as PlanBuilder makes them. So
// the figures are exact to the byte: the placement fits at each, and does not at one more.
//
// In: a plan that fits. All figures are of one replica; Plan::num_replicas() times as many
// sequences and tokens in all. Thread-safe, deterministic.
#pragma once

#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

struct Room {
    // Tokens that the KV pool could have, at the plan's own batch; and where it ends.
    int64_t kv_tokens = 0;
    DeviceId kv_bound;
    int64_t kv_tokens_now = 0;  // of the pool that the plan has
    // The largest batch at the plan's context, each sequence with KV for a whole context.
    int64_t max_sequences = 0;
    DeviceId sequences_bound;  // the device that is full; invalid: no memory ends it (below)
    // The longest context at the plan's batch, as above. What memory allows: where it is more
    // than the model's positions, these end first.
    int64_t max_context = 0;
    DeviceId context_bound;
    int64_t positions = 0;       // that the model has; 0: unlimited, or nobody knows
    bool positions_end = false;  // before memory does
    // The plan's workload fits with whole contexts: false of a pool that is smaller than these.
    bool whole_contexts = true;

    bool has_kv() const { return kv_bound.valid(); }
};

// All zero for a graph without a KV cache. A bound is invalid where numbers end before memory
// does: kMostSequences, kMostPositions (planner/search/check_sizes.h), or a launch that no tile
// brings within its device's limits.
Room room_of(const Plan& plan);

// Each device's account with the plan's placement at another batch and context, each sequence with
// KV for a whole context; whether that fits is the caller's question.
std::vector<DeviceMemory> memory_at(const Plan& plan, int64_t batch, int64_t context);

}  // namespace cleave::planner
