// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/block_table.h"

#include <algorithm>

#include "planner/plan/plan_queries.h"
#include "runtime/device/async_device.h"

namespace cleave::runtime {

using namespace planner;

BlockTable::BlockTable(const Plan& plan, const Arenas& arenas, DeviceId id)
    : address_(arenas.batch(id).blocks) {
    if (address_ == 0) return;
    const Workload& w = plan.workload;
    const int64_t num_blocks = plan.kv_pool.num_blocks;
    identity_ = identity_table(w, num_blocks);
    for (const KvSlab& slab : plan.kv_slabs) {
        if (slab.device != id) continue;
        DeviceAddress at = arenas.address(slab.buffer);
        std::vector<int64_t> block_bytes;  // of a head: keys, values, and the scales of both
        for (int64_t dim : {slab.head_dim, slab.v_head_dim})
            block_bytes.push_back(dtype_bytes(*w.kv_dtype, kKvBlock * dim));
        if (has_kv_scales(*w.kv_dtype))
            block_bytes.insert(block_bytes.end(), 2, dtype_bytes(DType::kF32, kKvBlock));
        for (int64_t bytes : block_bytes) {
            parts_.push_back({at, slab.kv_heads.size(), bytes, num_blocks * bytes});
            at += static_cast<DeviceAddress>(slab.kv_heads.size() * num_blocks * bytes);
        }
    }
}

void BlockTable::prepare(const Batch& batch, Device& device) {
    if (address_ == 0) return;
    upload(batch.blocks.empty() ? identity_ : batch.blocks, device);
    for (const BlockCopy& copy : batch.copies)
        for (const Part& part : parts_) BlockTable::copy(part, copy, device);
}

// From the first entry that differs to the last.
void BlockTable::upload(std::span<const int32_t> wanted, Device& device) {
    size_t begin = 0, end = wanted.size();
    if (there_.size() == wanted.size()) {
        const auto first = std::mismatch(wanted.begin(), wanted.end(), there_.begin()).first;
        begin = static_cast<size_t>(first - wanted.begin());
        while (end > begin && wanted[end - 1] == there_[end - 1]) --end;
    }
    if (begin == end) return;
    device.upload(address_ + begin * sizeof(int32_t),
                  std::as_bytes(wanted.subspan(begin, end - begin)));
    there_.assign(wanted.begin(), wanted.end());
}

void BlockTable::copy(const Part& part, const BlockCopy& copy, Device& device) {
    const DeviceAddress from = part.address + static_cast<DeviceAddress>(copy.from * part.bytes),
                        to = part.address + static_cast<DeviceAddress>(copy.to * part.bytes);
    if (DeviceStream* stream = device.stream())
        return stream->copy_within(from, to, {part.heads, part.bytes, part.stride, part.stride});
    // A device that is done when a call returns: through memory of the host.
    std::vector<std::byte> block(static_cast<size_t>(part.heads * part.bytes));
    device.copy_out(from, block.data(), {part.heads, part.bytes, part.stride, part.bytes});
    device.copy_in(block.data(), to, {part.heads, part.bytes, part.bytes, part.stride});
}

}  // namespace cleave::runtime
