// SPDX-License-Identifier: Apache-2.0
#include "runtime/drivers/host/numa_node.h"

#include <utility>

#include "runtime/base/errors.h"
#include "runtime/base/reason.h"
#include "runtime/drivers/host/hwloc_topology.h"

namespace cleave::runtime {
namespace {

// Cores that the process may use, by all its threads together.
Bitmap usable(hwloc_topology* topology) {
    Bitmap cores(hwloc_bitmap_alloc());
    if (!cores || hwloc_get_cpubind(topology, cores.get(), HWLOC_CPUBIND_PROCESS) != 0)
        throw UserError("hwloc cannot say which cores this process may use: {}",
                        last_error().message());
    return cores;
}

struct Found {
    hwloc_obj_t node;
    Bitmap cores;
};

// The nodes with cores that the process may use.
std::vector<Found> nodes_of(hwloc_topology* topology) {
    const Bitmap all = usable(topology);
    std::vector<Found> found;
    for (hwloc_obj_t node = nullptr;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));) {
        Bitmap cores(hwloc_bitmap_dup(node->cpuset));
        if (!cores || hwloc_bitmap_and(cores.get(), cores.get(), all.get()) != 0)
            throw std::bad_alloc();
        if (!hwloc_bitmap_iszero(cores.get())) found.push_back({node, std::move(cores)});
    }
    return found;
}

}  // namespace

std::vector<planner::NumaNode> read_numa_nodes() {
    const Topology topology = load_topology();
    std::vector<planner::NumaNode> nodes;
    for (const Found& found : nodes_of(topology.get()))
        nodes.push_back({hwloc_bitmap_weight(found.cores.get()),
                         static_cast<int64_t>(found.node->attr->numanode.local_memory)});
    return nodes;
}

struct NumaBinding::Node {
    Topology topology = load_topology();
    hwloc_obj_t object = nullptr;  // of the topology
    Bitmap cores;
};

NumaBinding::NumaBinding(int node, std::string device)
    : node_(std::make_unique<Node>()), device_(std::move(device)) {
    std::vector<Found> found = nodes_of(node_->topology.get());
    if (node < 0 || static_cast<size_t>(node) >= found.size())
        throw UserError(
            "{} is a NUMA node that this host has not; it has {} with cores for this process",
            device_, found.size());
    node_->object = found[static_cast<size_t>(node)].node;
    node_->cores = std::move(found[static_cast<size_t>(node)].cores);
}

NumaBinding::~NumaBinding() = default;
NumaBinding::NumaBinding(NumaBinding&&) noexcept = default;

void NumaBinding::keep_thread() const {
    if (hwloc_set_cpubind(node_->topology.get(), node_->cores.get(),
                          HWLOC_CPUBIND_THREAD | HWLOC_CPUBIND_STRICT) != 0)
        throw DeviceError("keeping a thread on the cores of its NUMA node", last_error().message(),
                          device_);
}

void NumaBinding::keep_memory(void* address, size_t bytes) const {
    if (hwloc_set_area_membind(node_->topology.get(), address, bytes, node_->object->nodeset,
                               HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_STRICT) != 0)
        throw DeviceError(
            fmt::format("keeping {} bytes in the memory of its NUMA node", bytes),
            fmt::format("{}; a container has to allow mbind (--cap-add SYS_NICE), or leave @numa "
                        "out",
                        last_error().message()),
            device_);
}

struct NumaBinding::Scope::Before {
    hwloc_topology* topology;
    Bitmap cores;
};

NumaBinding::Scope::Scope(const NumaBinding& node)
    : before_(std::make_unique<Before>(node.node_->topology.get(), Bitmap(hwloc_bitmap_alloc()))) {
    if (!before_->cores ||
        hwloc_get_cpubind(before_->topology, before_->cores.get(), HWLOC_CPUBIND_THREAD) != 0)
        throw DeviceError("reading the cores of a thread", last_error().message(), node.device_);
    node.keep_thread();
}

NumaBinding::Scope::~Scope() {
    hwloc_set_cpubind(before_->topology, before_->cores.get(), HWLOC_CPUBIND_THREAD);
}

}  // namespace cleave::runtime
