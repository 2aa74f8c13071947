// SPDX-License-Identifier: Apache-2.0
// Small machines for tests: hosts whose rates follow from their cores, and lists of devices on
// them.
#pragma once

#include <string>

#include "planner/machine/build_machine.h"

namespace cleave::test {

// 10 GB/s and 50 GFLOP/s a core.
inline planner::HostFacts small_host(int cores = 4, int64_t gibibytes = 8) {
    return {cores, gibibytes << 30, cores * 10'000'000'000, cores * 50'000'000'000, "x86-64-v3",
            {}};
}

// `devices` as `--devices` has them.
inline planner::Machine machine_of(const std::string& devices,
                                   const planner::HostFacts& host = small_host()) {
    return planner::build_machine(planner::parse_devices(devices), host);
}

// A machine of two devices, the second one on a host of its own: `bandwidth` in bytes a second.
inline planner::Machine on_two_hosts(planner::Machine machine, int64_t bandwidth,
                                     int64_t latency_ns) {
    for (planner::DeviceInfo& device : machine.devices) device.memory_domain = -1;
    machine.devices[1].host = "b";
    for (planner::Link& link : machine.links)
        link = {link.from, link.to, planner::LinkKind::kNetwork, bandwidth, latency_ns};
    return machine;
}

}  // namespace cleave::test
