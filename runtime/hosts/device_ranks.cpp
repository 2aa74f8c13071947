// SPDX-License-Identifier: Apache-2.0
#include "runtime/hosts/device_ranks.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace cleave::runtime {

using namespace planner;

DeviceRanks ranks_of_devices(const Plan& plan, HostJob* job) {
    const std::string here = DeviceInfo().host;
    const std::vector<DeviceInfo>& devices = plan.machine.devices;
    if (std::all_of(devices.begin(), devices.end(),
                    [&](const DeviceInfo& device) { return device.host == here; }))
        return {};
    DeviceRanks all{job, {}};
    for (const DeviceInfo& device : devices) {
        const int rank = job ? job->rank_of(device.host) : device.host == here ? 0 : -1;
        if (rank < 0)
            throw UserError(
                "{}: the plan places it on the machine '{}', {}; start one process on each of the "
                "plan's hosts (mpirun), or plan for the devices of one machine",
                device.name, device.host,
                job ? fmt::format("which takes no part in this run; its hosts are {}",
                                  fmt::join(job->hosts(), ", "))
                    : "and this process runs the devices of its own machine alone ('" + here +
                          "')");
        all.ranks.push_back(rank);
    }
    return all;
}

}  // namespace cleave::runtime
