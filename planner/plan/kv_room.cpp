// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/kv_room.h"

#include <algorithm>
#include <map>

#include "runtime/base/errors.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {

std::optional<KvBound> kv_bound(const Plan& plan) {
    std::map<DeviceId, std::vector<int64_t>> block_bytes;  // of each slab
    for (const KvSlab& s : plan.kv_slabs)
        block_bytes[s.device].push_back(
            kv_position_bytes(plan.workload.kv_dtype.value_or(DType::kF32),
                              s.kv_heads.size() * kKvBlock, s.head_dim, s.v_head_dim));
    std::optional<KvBound> bound;
    for (const auto& [device, slabs] : block_bytes) {
        const DeviceMemory& m = plan.memory[device.index()];
        const int64_t room = m.free() + m.kv;
        int64_t all = 0;
        for (int64_t bytes : slabs) all += bytes;
        CLEAVE_CHECK(all > 0) << "a KV slab without heads";
        const auto taken = [&](int64_t blocks) {
            int64_t bytes = 0;
            for (int64_t slab : slabs) bytes += round_up(slab * blocks, 256);
            return bytes;
        };
        // Ids are int32. Rounding takes less than 256 bytes a slab, so few steps remain.
        int64_t blocks = std::clamp<int64_t>(room / all, 0, INT32_MAX);
        while (blocks > 0 && taken(blocks) > room) --blocks;
        if (!bound || blocks < bound->num_blocks) bound = {device, blocks};
    }
    return bound;
}

}  // namespace cleave::planner
