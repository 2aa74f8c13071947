// SPDX-License-Identifier: Apache-2.0
#include "planner/build/fill_kv_pool.h"

#include <vector>

#include "planner/build/assign_memory.h"
#include "planner/plan/kv_room.h"
#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {

void fill_kv_pool(Plan& plan) {
    const std::optional<KvBound> bound = kv_bound(plan);
    if (!bound) return;
    CLEAVE_CHECK(bound->num_blocks >= plan.kv_pool.num_blocks)
        << "a plan that fits has " << plan.kv_pool.num_blocks << " blocks, and room for "
        << bound->num_blocks;
    plan.kv_pool.num_blocks = bound->num_blocks;
    std::vector<int64_t> end(plan.memory.size(), 0);  // of the arena
    for (const KvSlab& s : plan.kv_slabs) {
        Buffer& buffer = plan.buffers[s.buffer.index()];
        buffer.offset = end[s.device.index()];
        buffer.size = kv_slab_bytes(s.kv_heads.size(), s.head_dim, s.v_head_dim, plan.workload,
                                    bound->num_blocks);
        end[s.device.index()] = round_up(buffer.offset + buffer.size, 256);
    }
    for (DeviceMemory& m : plan.memory) m.kv = end[m.device.index()];
}

}  // namespace cleave::planner
