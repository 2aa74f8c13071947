// SPDX-License-Identifier: Apache-2.0
// The plan's buffers as memory: one allocation for each arena of each device, exactly as large as
// the plan's account says. Addresses of buffers, and views of placed values, come from here.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/device/device.h"

namespace cleave::runtime {

// Where a placed value is: [rows, columns.size()] row major, or nothing for an empty box.
struct PlacedView {
    DeviceAddress address = 0;
    planner::Range columns;  // of the value's last dimension
    DType dtype = DType::kF32;
    bool per_output = false;  // rows are num_outputs, not num_tokens
    bool whole = false;       // a tensor: one row of all its elements

    int64_t rows(int64_t num_tokens, int64_t num_outputs) const {
        return whole ? 1 : per_output ? num_outputs : num_tokens;
    }
    int64_t row_bytes() const { return dtype_bytes(dtype, columns.size()); }
    // The same from a later row on.
    PlacedView from_row(int64_t row) const {
        PlacedView view = *this;
        view.address += static_cast<DeviceAddress>(row * row_bytes());
        return view;
    }
};

// Where the int32 arrays of a batch are on one device.
struct BatchAddresses {
    DeviceAddress token_ids = 0, positions = 0, slots = 0, sequence_starts = 0, output_rows = 0;
    DeviceAddress blocks = 0;  // of a device with KV slabs
    DeviceAddress& of(planner::BufferRole role);
};

// Where payloads that leave a device, or come to it over the network, are staged; nothing for one
// that sends or gets nothing.
struct ExchangeArea {
    DeviceAddress address = 0;
    int64_t bytes = 0;
};

// What a device has for exchanges by peer memory; 0 where it takes part in none.
struct PeerArea {
    DeviceAddress payloads = 0, signals = 0;
};

class Arenas {
public:
    // Allocates on every device of this process; those of other ranks are null, and have no
    // addresses. InternalError when a device's arenas differ from the plan's
    // account of them.
    Arenas(const planner::Plan& plan, std::span<const std::unique_ptr<Device>> devices);

    // From now on the buffer is there, in memory of the host that the device only reads and `keep`
    // keeps. Before anything has its address. Threads may place different buffers.
    void place(planner::BufferId buffer, const std::byte* where);
    void keep(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

    DeviceAddress address(planner::BufferId buffer) const;
    const BatchAddresses& batch(planner::DeviceId device) const { return batch_[device.index()]; }
    const ExchangeArea& exchange(planner::DeviceId device) const {
        return exchange_[device.index()];
    }
    const ExchangeArea& arrivals(planner::DeviceId device) const {
        return arrivals_[device.index()];
    }
    const PeerArea& peers(planner::DeviceId device) const { return peers_[device.index()]; }
    // Where the output device leaves the tokens that it chose; 0 where it chooses none.
    DeviceAddress tokens() const { return tokens_; }
    PlacedView view(const planner::Phase& phase, planner::PlacedId id) const;

private:
    void allocate(std::span<const std::unique_ptr<Device>> devices);
    void find_staging(std::span<const std::unique_ptr<Device>> devices);
    // A buffer of at least so many bytes; 0 where the device has none of that role.
    DeviceAddress find(planner::DeviceId device, planner::BufferRole role, int64_t bytes) const;

    static constexpr size_t kNumArenas = 5;
    const planner::Plan& plan_;
    std::vector<std::array<DeviceAddress, kNumArenas>> base_;  // by device, by arena
    std::vector<DeviceAddress> placed_;                        // by buffer; 0: in its arena
    std::shared_ptr<const void> owner_;                        // of what lies elsewhere
    std::vector<BatchAddresses> batch_;                        // by device
    std::vector<ExchangeArea> exchange_, arrivals_;            // by device
    std::vector<PeerArea> peers_;                              // by device
    DeviceAddress tokens_ = 0;
};

}  // namespace cleave::runtime
