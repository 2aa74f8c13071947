// SPDX-License-Identifier: Apache-2.0
// Cores, caches and memory nodes of the machine that the process runs on, as hwloc sees them. What
// `cleave devices` shows beside the host's rates; nothing is decided by it.
#pragma once

#include <cstdint>
#include <string>

namespace cleave::runtime {

struct HostTopology {
    int packages = 0, numa_nodes = 0, cores = 0, threads = 0;
    int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // one data cache of each level, 0: none seen
    std::string cpu_model;                             // empty when the system does not say
};

// InternalError when hwloc cannot be initialised. Takes some milliseconds; any thread.
HostTopology read_host_topology();

}  // namespace cleave::runtime
