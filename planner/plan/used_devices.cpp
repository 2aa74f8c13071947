// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/used_devices.h"

#include <algorithm>
#include <set>

#include "planner/plan/plan_queries.h"

namespace cleave::planner {

std::vector<DeviceId> used_devices(const PlanBody& plan) {
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
    const auto [make, number] = find_replica(plan, replica);
    return number == 0 ? make.machine : make.copies[static_cast<size_t>(number - 1)];
}

std::set<std::string> used_device_names(const Plan& plan) {
    std::set<std::string> names;
    for (const Plan* make : makes_of(plan))
        for (int64_t replica = 0; replica < make->num_alike(); ++replica)
            for (DeviceId d : used_devices(*make))
                names.insert(replica_machine(*make, replica).device(d).name);
    return names;
}

std::vector<std::string> all_device_names(const Plan& plan) {
    std::vector<std::string> names;
    for (int64_t r = 0; r < plan.num_replicas(); ++r)
        for (const DeviceInfo& d : replica_machine(plan, r).devices) names.push_back(d.name);
    return names;
}

}  // namespace cleave::planner
