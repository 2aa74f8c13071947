// SPDX-License-Identifier: Apache-2.0
// The groups of a plan that sum by their vendor's library (runtime/drivers/nccl): each opened once, before the first pass, for
// all steps that name it. In: a plan, its devices. Threads: `rank` is for the device's worker, `abort` for any.
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

    // The communicator of member `rank` of a group of the plan.
    CollectiveRank& rank(const std::vector<planner::DeviceId>& group, size_t rank) const;

    // What runs ends undone, so that no rank waits for one that failed.
    void abort() noexcept;

private:
    std::map<planner::DeviceKind, std::shared_ptr<const CollectiveLibrary>> libraries_;
    std::map<std::vector<planner::DeviceId>, std::unique_ptr<CollectiveGroup>> groups_;
};

}  // namespace cleave::runtime
