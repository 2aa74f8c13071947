// SPDX-License-Identifier: Apache-2.0
// Threads and memory of a host device that is one NUMA node of this host.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "planner/machine/host_facts.h"

namespace cleave::runtime {

// The NUMA nodes of this host that have cores which the process may use, in the order that numbers
// host[N]@numa. UserError where hwloc cannot say. Takes some milliseconds; any thread.
std::vector<planner::NumaNode> read_numa_nodes();

// One of them, for the threads and the memory of a device. Any thread.
class NumaBinding {
public:
    // UserError, with `device` for a name, where this host has no such node.
    NumaBinding(int node, std::string device);
    ~NumaBinding();
    NumaBinding(NumaBinding&&) noexcept;

    // The calling thread runs on the node's cores alone, and so do those that it starts from now
    // on. DeviceError where the system refuses it.
    void keep_thread() const;
    // Pages that begin at `address` come from the node's memory. None of them was touched yet.
    // DeviceError where the system refuses it.
    void keep_memory(void* address, size_t bytes) const;

    // Keeps the calling thread until it goes.
    class Scope {
    public:
        explicit Scope(const NumaBinding& node);
        ~Scope();
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

    private:
        struct Before;
        std::unique_ptr<Before> before_;
    };

private:
    struct Node;
    std::unique_ptr<Node> node_;
    std::string device_;
};

}  // namespace cleave::runtime
