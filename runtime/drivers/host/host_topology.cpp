// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/host/host_topology.h"

#include <algorithm>

#include "runtime/drivers/host/hwloc_topology.h"

namespace cleave::runtime {
namespace {

int64_t cache_bytes(hwloc_topology* topology, hwloc_obj_type_t level) {
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, level, 0);
    return cache ? static_cast<int64_t>(cache->attr->cache.size) : 0;
}

}  // namespace

HostTopology read_host_topology() {
    const Topology topology = load_topology();
    auto count = [&](hwloc_obj_type_t type) {
        return std::max(0, hwloc_get_nbobjs_by_type(topology.get(), type));
    };
    HostTopology host;
    host.packages = count(HWLOC_OBJ_PACKAGE);
    host.numa_nodes = count(HWLOC_OBJ_NUMANODE);
    host.cores = count(HWLOC_OBJ_CORE);
    host.threads = count(HWLOC_OBJ_PU);
    host.l1_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L1CACHE);
    host.l2_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L2CACHE);
    host.l3_bytes = cache_bytes(topology.get(), HWLOC_OBJ_L3CACHE);
    if (hwloc_obj_t package = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0))
        if (const char* model = hwloc_obj_get_info_by_name(package, "CPUModel"))
            host.cpu_model = model;
    return host;
}

}  // namespace cleave::runtime
