// SPDX-License-Identifier: Apache-2.0
// The devices of a plan that exchange by their vendor's library (runtime/drivers/nccl): each set of
// them is joined once, before weights are read, for all steps among them, as a communicator costs
// memory of each card. What its steps will ask of it is asked of it at once, on the plan's own
// buffers, as the library connects ranks and takes memory at the first use (NCCL user guide,
// NCCL_RUNTIME_CONNECT). A set with cards of several hosts is joined by the ranks that have them,
// at the same time and in one order: that of its first card makes the communicator's id. In: a
// plan, its devices and their arenas. Threads: what `rank` gives is for the device's worker,
// `abort` for any.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/base/cancel.h"
#include "runtime/cards/drivers.h"
#include "runtime/device/device.h"
#include "runtime/drivers/nccl/collective_library.h"
#include "runtime/hosts/device_ranks.h"
#include "runtime/load/arenas.h"
#include "runtime/load/communicator_account.h"

namespace cleave::runtime {

class VendorGroups {
public:
    // UserError where the plan wants a library that is not here, naming it and what was tried.
    // DeviceError where it fails, and where its cards have not the memory that it needs. Overwrites
    // buffers of activations and of batches. Devices of other ranks are null.
    VendorGroups(const planner::Plan& plan, Drivers& drivers,
                 std::span<const std::unique_ptr<Device>> devices, const DeviceRanks& ranks,
                 const Arenas& arenas, const CollectiveOptions& options);

    // The communicator of one of `devices`, which are all that take part in a step, in any order; a
    // device of this process.
    CollectiveRank& rank(const std::vector<planner::DeviceId>& devices,
                         planner::DeviceId device) const;
    // By which number that communicator and its peers know the device.
    int number(const std::vector<planner::DeviceId>& devices, planner::DeviceId device) const;

    // What runs ends undone, so that no rank waits for one that failed.
    void abort() noexcept;

    // Of each card that is in a communicator.
    const std::vector<LibraryMemory>& memory() const { return memory_; }

private:
    // A sum as a pass may ask for it, in place.
    struct Sum {
        std::map<planner::DeviceId, DeviceAddress> values;
        int64_t count = 0;
        DType dtype = DType::kF32;
    };
    struct Joined {
        std::vector<planner::DeviceId> members;  // by number
        std::vector<size_t> here;                // numbers of those of this process
        std::optional<Sum> largest,
            smallest;  // of the plan's: the library's algorithm goes by size
        std::set<std::pair<planner::DeviceId, planner::DeviceId>> messages;  // from, to
        std::unique_ptr<CollectiveGroup> group;
    };
    const Joined& joined(std::vector<planner::DeviceId> devices) const;
    void find_groups(const planner::Plan& plan, const Arenas& arenas);
    void open(const planner::Plan& plan, std::span<const std::unique_ptr<Device>> devices,
              const DeviceRanks& ranks, const CollectiveOptions& options, Joined& joined) const;
    static void rehearse(std::span<const std::unique_ptr<Device>> devices, const Arenas& arenas,
                         const CollectiveOptions& options, Joined& joined);

    std::map<planner::DeviceKind, std::shared_ptr<const CollectiveLibrary>> libraries_;
    std::map<std::vector<planner::DeviceId>, Joined> groups_;  // by devices in order
    std::vector<LibraryMemory> memory_;
};

}  // namespace cleave::runtime
