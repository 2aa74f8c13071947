// SPDX-License-Identifier: Apache-2.0
// The plan's buffers as memory: one allocation for each arena of each device, exactly as large as the plan's
// account says. Addresses of buffers, and views of placed values, come from here.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "planner/plan.h"
#include "runtime/batch.h"
#include "runtime/device.h"

namespace cleave::runtime {

// Where a placed value lies: [rows, columns.size()] row major, or nothing for an empty box.
struct PlacedView {
    DeviceAddress address = 0;
    planner::Range columns;      // of the value's last dimension
    DType dtype = DType::kF32;
    bool per_output = false;     // rows are num_outputs, not num_tokens

    int64_t rows(int64_t num_tokens, int64_t num_outputs) const { return per_output ? num_outputs : num_tokens; }
    int64_t row_bytes() const { return dtype_bytes(dtype, columns.size()); }
};

// Where the int32 arrays of a batch lie on a device; each phase has its own offsets so that one short upload
// carries a decode step's arrays.
struct BatchLayout {
    int64_t token_ids = 0, positions = 0, slots = 0, sequence_starts = 0, output_rows = 0;  // byte offsets
    int64_t bytes = 0;
};
BatchLayout batch_layout(const planner::Workload& workload, bool is_prefill);

// The arrays of `batch` as they lie on a device.
std::vector<std::byte> pack_batch(const Batch& batch, const BatchLayout& layout);

class Arenas {
public:
    // Allocates on every device. InternalError when a device's arenas differ from the plan's account of them.
    Arenas(const planner::Plan& plan, std::span<const std::unique_ptr<Device>> devices);

    DeviceAddress address(planner::BufferId buffer) const;
    DeviceAddress batch_address(planner::DeviceId device) const { return batch_[device.index()]; }
    PlacedView view(const planner::Phase& phase, planner::PlacedId id) const;

private:
    static constexpr size_t kNumArenas = 5;
    const planner::Plan& plan_;
    std::vector<std::array<DeviceAddress, kNumArenas>> base_;  // by device, by arena
    std::vector<DeviceAddress> batch_;                         // by device
};

}  // namespace cleave::runtime
