// SPDX-License-Identifier: Apache-2.0
// Host devices that are NUMA nodes: `host@numa` for each, `host[N]@numa` for one.
#pragma once

#include <vector>

#include "planner/machine/device_list.h"
#include "planner/machine/host_facts.h"
#include "planner/machine/machine.h"

namespace cleave::planner {

// The list with host@numa as the nodes of `host`, by their numbers. UserError for a node that is
// not there or is given twice, where nobody looked for nodes, and beside host devices that have the
// cores of all nodes.
std::vector<DeviceSpec> with_numa_nodes(const std::vector<DeviceSpec>& specs,
                                        const HostFacts& host);

// Makes a device that has all of the host one of its nodes: by its part of the cores it has the
// rates, by its part of the memory the memory.
void keep_to_node(DeviceInfo& device, const HostFacts& host, int node);

}  // namespace cleave::planner
