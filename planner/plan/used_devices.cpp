// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/used_devices.h"

#include <algorithm>
#include <set>

namespace cleave::planner {

std::vector<DeviceId> used_devices(const Plan& plan) {
    std::set<DeviceId> used;
    for (const Stage& stage : plan.stages) used.insert(stage.devices.begin(), stage.devices.end());
    return {used.begin(), used.end()};
}

std::vector<DeviceId> unused_devices(const Plan& plan) {
    const std::vector<DeviceId> used = used_devices(plan);
    std::vector<DeviceId> unused;
    for (size_t d = 0; d < plan.machine.devices.size(); ++d)
        if (!std::ranges::binary_search(used, DeviceId(d))) unused.emplace_back(d);
    return unused;
}

const Machine& replica_machine(const Plan& plan, int64_t replica) {
    return replica == 0 ? plan.machine : plan.copies[static_cast<size_t>(replica - 1)];
}

}  // namespace cleave::planner
