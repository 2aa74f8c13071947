// SPDX-License-Identifier: Apache-2.0
// A Transfer or Collective step as its participants carry it out: through staging memory of the
// host, the path that is always right, or by launches of their own where the plan says so. Each
// participating worker calls `take_part` once a pass, in step order.
#pragma once

#include <memory>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/device/device.h"
#include "runtime/exchange/rendezvous.h"
#include "runtime/hosts/device_ranks.h"
#include "runtime/load/arenas.h"
#include "runtime/load/bindings.h"

namespace cleave::runtime {

class VendorGroups;

// One worker's side of a communication.
struct Participant {
    planner::DeviceId id;
    Device& device;
    StagingLane& lane;  // payloads of this device leave from here
};

class Communication {
public:
    virtual ~Communication() = default;

    // Devices that take part, in device order.
    virtual std::vector<planner::DeviceId> participants() const = 0;

    // What moves the values.
    virtual planner::Path path() const { return planner::Path::kStaged; }
    // Whether `take_part` only puts work on the device's stream, the same every time but for the
    // counts of the pass.
    virtual bool is_on_stream() const { return path() == planner::Path::kPeer; }

    // The part of `self` in round `round` of this step. Returns the bytes that came from other
    // devices. Throws what Rendezvous throws.
    virtual int64_t take_part(const Participant& self, const PassShape& shape, uint64_t round) = 0;

    // Wakes waiters after RunControl::stop.
    virtual void wake() = 0;
};

// Where a communication step is made.
struct CommunicationContext {
    const planner::Plan& plan;
    const planner::Phase& phase;
    const Arenas& arenas;
    RunControl& control;
    std::string label;                         // of the step, for messages
    int64_t piece_bytes = int64_t{512} << 10;  // in which a large value goes to or from a GPU
    // The launches of the step in the programs, by device.
    std::vector<std::vector<BoundLaunch*>> launches;
    const VendorGroups* vendor_groups = nullptr;  // not null of steps that go by a vendor's library
    const DeviceRanks* ranks = nullptr;           // null: all devices are this process's
};

std::unique_ptr<Communication> make_transfer(const CommunicationContext& context,
                                             const planner::Transfer& step);
std::unique_ptr<Communication> make_all_reduce(const CommunicationContext& context,
                                               const planner::Collective& step);
std::unique_ptr<Communication> make_vendor_all_reduce(const CommunicationContext& context,
                                                      const planner::Collective& step);
std::unique_ptr<Communication> make_vendor_gather(const CommunicationContext& context,
                                                  const planner::Collective& step);
std::unique_ptr<Communication> make_peer_exchange(const CommunicationContext& context,
                                                  const planner::Step& step);
std::unique_ptr<Communication> make_all_gather(const CommunicationContext& context,
                                               const planner::Collective& step);

// One of the above; UserError for a step by a vendor's library where there are no groups of it.
std::unique_ptr<Communication> make_communication(const CommunicationContext& context,
                                                  const planner::Step& step);

// Names of devices, for messages.
std::vector<std::string> device_names(const planner::Plan& plan,
                                      const std::vector<planner::DeviceId>& devices);

// Position of `device`, or -1.
int position_of(planner::DeviceId device, const std::vector<planner::DeviceId>& devices);

// Copies `columns` (within the view's own) of the first `rows` rows out of, or into, a dense
// staging block.
void stage_out(Device& device, const PlacedView& view, planner::Range columns, int64_t rows,
               std::byte* staging);
void stage_in(Device& device, const PlacedView& view, planner::Range columns, int64_t rows,
              const std::byte* staging);

}  // namespace cleave::runtime
