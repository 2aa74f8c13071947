// SPDX-License-Identifier: Apache-2.0
// In: what each host of a run says of its own devices, and the rates between hosts. Out: one
// Machine with all devices, in the user's order. Devices of one host keep their links and domains;
// those of two are joined by the network. All links that leave a host share its adapter.
#pragma once

#include <string>
#include <vector>

#include "planner/machine/machine.h"

namespace cleave::planner {

struct HostMachine {
    std::string host;  // becomes DeviceInfo::host
    Machine machine;
};

// From one host to another: bytes/s, and the time of a message of no length.
struct NetworkRate {
    int64_t bandwidth = 0;
    int64_t latency_ns = 0;
};

// `rates[a][b]` is from host a to host b. `order` has the name of each device once; a name that no
// host has, or one too few, is an InternalError.
Machine join_machines(const std::vector<HostMachine>& hosts,
                      const std::vector<std::vector<NetworkRate>>& rates,
                      const std::vector<std::string>& order);

}  // namespace cleave::planner
