// SPDX-License-Identifier: Apache-2.0
// In: a Plan with steps. Out: its buffers, every one with device, arena, offset and size, and
// DeviceMemory exact to the allocation. Activations share space by liveness over both phases (which
// never run at once); everything else has its own. Invariant: offsets are multiples of 256, live
// buffers do not overlap.
#pragma once

#include "planner/plan/plan.h"

namespace cleave::planner {

void assign_memory(Plan& plan);

// Bytes of `num_blocks` blocks of one KV slab of `kv_heads` heads.
int64_t kv_slab_bytes(int64_t kv_heads, int64_t head_dim, int64_t v_head_dim,
                      const Workload& workload, int64_t num_blocks);

// Bytes of a rope table on a device: cos and sin, f32, [context, rotary_dim / 2] each.
int64_t rope_bytes(const importer::RopeTable& table, const Workload& workload);

// Bytes of the batch's metadata on every device, with the block table of those that have KV slabs.
int64_t batch_bytes(const Workload& workload);

}  // namespace cleave::planner
