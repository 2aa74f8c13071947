// SPDX-License-Identifier: Apache-2.0
// A device's copy of the block table, and its part of copies of blocks. In: batches in the order of
// their passes. Out: the table on the device, of which only what changed is uploaded, and blocks
// copied in all of the device's KV slabs. Everything goes on the device's stream, in front of the
// pass's first step and never inside a capture. Used by one worker; not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/device/device.h"
#include "runtime/execute/batch.h"
#include "runtime/load/arenas.h"

namespace cleave::runtime {

class BlockTable {
public:
    // Nothing to do on a device that has no KV slab. `plan` and `arenas` outlive the table.
    BlockTable(const planner::Plan& plan, const Arenas& arenas, planner::DeviceId id);

    // Brings the table and copies the blocks of a batch that check_blocks has passed. DeviceError
    // as the device's copies have it.
    void prepare(const Batch& batch, Device& device);

private:
    // Blocks of one head, `bytes` each; those of the next head are `stride` bytes behind.
    struct Part {
        DeviceAddress address = 0;
        int64_t heads = 0, bytes = 0, stride = 0;
    };
    void upload(std::span<const int32_t> wanted, Device& device);
    static void copy(const Part& part, const BlockCopy& copy, Device& device);

    DeviceAddress address_ = 0;  // 0: this device has no KV slab
    std::vector<int32_t> identity_;
    std::vector<int32_t> there_;  // what the device has; empty: nothing yet
    std::vector<Part> parts_;     // keys, values and their scales, of each slab
};

}  // namespace cleave::runtime
