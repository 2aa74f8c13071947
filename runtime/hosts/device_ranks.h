// SPDX-License-Identifier: Apache-2.0
// Which rank of a run has each device of a plan.
#pragma once

#include <vector>

#include "planner/plan/plan.h"
#include "runtime/hosts/job.h"

namespace cleave::runtime {

struct DeviceRanks {
    HostJob* job = nullptr;  // null: all are this process's
    std::vector<int> ranks;  // by device

    int rank(planner::DeviceId device) const { return job ? ranks[device.index()] : 0; }
    bool here(planner::DeviceId device) const { return !job || rank(device) == job->rank(); }
};

// Of a plan whose devices are all of the machine of this process, or of the ranks of `job` (may be
// null). UserError that names the first device of another host, and the hosts of the run.
DeviceRanks ranks_of_devices(const planner::Plan& plan, HostJob* job);

}  // namespace cleave::runtime
