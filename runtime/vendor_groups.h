// SPDX-License-Identifier: Apache-2.0
// The devices of a plan that exchange by their vendor's library (runtime/drivers/nccl): each set of them is joined once, before
// the first pass, for all steps among them, as a communicator costs memory of each card. In: a plan, its devices. Threads:
// what `rank` gives is for the device's worker, `abort` for any.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "planner/plan.h"
#include "runtime/base/cancel.h"
#include "runtime/device.h"
#include "runtime/drivers/nccl/collective_library.h"

namespace cleave::runtime {

class VendorGroups {
public:
    // UserError where the plan wants a library that is not here, naming it and what was tried.
    VendorGroups(const planner::Plan& plan, std::span<const std::unique_ptr<Device>> devices,
                 int limit_seconds, const CancelToken* cancel);

    // The communicator of one of `devices`, which are all that take part in a step, in any order.
    CollectiveRank& rank(const std::vector<planner::DeviceId>& devices,
                         planner::DeviceId device) const;
    // By which number that communicator and its peers know the device.
    int number(const std::vector<planner::DeviceId>& devices, planner::DeviceId device) const;

    // What runs ends undone, so that no rank waits for one that failed.
    void abort() noexcept;

private:
    struct Joined {
        std::vector<planner::DeviceId> members;  // by number
        std::unique_ptr<CollectiveGroup> group;
    };
    const Joined& joined(std::vector<planner::DeviceId> devices) const;

    std::map<planner::DeviceKind, std::shared_ptr<const CollectiveLibrary>> libraries_;
    std::map<std::vector<planner::DeviceId>, Joined> groups_;  // by devices in order
};

}  // namespace cleave::runtime
