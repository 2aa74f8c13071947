// SPDX-License-Identifier: Apache-2.0
// What the network between the hosts of a run gives, as steps of a plan will find it: one message
// at a time, there and back, through the same threads.
#pragma once

#include <vector>

#include "planner/machine/join_machines.h"
#include "runtime/hosts/job.h"

namespace cleave::runtime {

// Every rank calls it; pairs measure one after the other, for a fifth of a second each. On rank 0:
// [from][to], both ways alike; elsewhere empty.
std::vector<std::vector<planner::NetworkRate>> measure_links(HostJob& job);

}  // namespace cleave::runtime
