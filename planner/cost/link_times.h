// SPDX-License-Identifier: Apache-2.0
// Times of transfers and collectives: alpha-beta over the links they use (Thakur, Rabenseifner and
// Gropp, IJHPCA 2005), all-reduces over NVLink and Infinity Fabric as fitted (kernel_times.h),
// those over several nodes by their library's forms (node_sums.h). Across hosts a sender posts its
// messages one after the other. In:
// a payload at a point of the workload. Out: integer nanoseconds of one step alone on its devices.
// What launches cost: launch_costs.h.
#pragma once

#include <algorithm>
#include <span>

#include "planner/analysis/work.h"
#include "planner/cost/peer_exchange.h"
#include "planner/machine/fabric.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// How an all-reduce of `members` is carried out. Decode payloads are all latency, and one exchange
// has the least of it. Large ones go round the ring, or, between devices that exchange through host
// memory, in two phases: one exchange would make every member sum every contribution (on 8 host
// devices prefill took twice as long).
SumForm all_reduce_form(bool through_host, bool is_prefill, size_t members);

// Links as a matrix, so that a lookup costs nothing: [from][to], nullptr where there is none.
class LinkTable {
public:
    explicit LinkTable(const Machine& machine);
    const Link* at(DeviceId from, DeviceId to) const {
        return links_[from.index() * count_ + to.index()];
    }

    // Links of a machine that has one between any two devices, alike within all hosts and alike
    // between all, none of them sharing a domain: so that of many devices no pairs need be looked
    // at. `inside` or `between` is null where there is no such pair.
    struct Uniform {
        const Link *inside = nullptr, *between = nullptr;
    };
    const Uniform* uniform() const { return is_uniform_ ? &uniform_ : nullptr; }
    // Whether the classes of two devices, and whether one host has both, tell all of the link
    // between them, and no links share a domain. `classes`: by device.
    bool tell_links(std::span<const int> classes) const;
    int node(DeviceId device) const { return node_[device.index()]; }
    // Bytes a second of the fastest link from it; 0: none.
    int64_t fastest_from(DeviceId device) const { return fastest_[device.index()]; }

    // Time of `bytes` from one device to another; staged through the hosts where there is no link.
    int64_t transfer_ns(DeviceId from, DeviceId to, int64_t bytes) const;

    // All-reduce of `bytes` a member, by form; neighbours in the group's order are the
    // ring's. Between GPUs that all have fast links to each other the libraries choose better
    // algorithms than any of these: the fitted times.
    int64_t all_reduce_ns(std::span<const DeviceId> group, int64_t bytes, SumForm form) const;

    // The domain that the links among these devices share, or -1, and what the busiest of them
    // wants of it.
    struct Demand {
        int domain = -1;
        int64_t bandwidth = 0;
    };
    Demand demand(std::span<const DeviceId> devices) const;

    // How many hosts have some of them.
    int64_t num_nodes(std::span<const DeviceId> devices) const;
    bool on_one_host(std::span<const DeviceId> devices) const {
        return std::ranges::all_of(devices, [&](DeviceId d) {
            return node_[d.index()] == node_[devices.front().index()];
        });
    }
    // Whether a vendor's library sums over several nodes: catalogue GPUs of one vendor, not all of
    // one host, that a fabric joins.
    bool sums_over_nodes(std::span<const DeviceId> group) const;

    // Whether any of them is a device that exists here, not one of the catalogue alone.
    bool runs_here(std::span<const DeviceId> group) const;
    // Whether the executor's own forms sum: on devices that exist here, and on simulated CPUs,
    // whose originals have no library of collectives.
    bool sums_by_executor(std::span<const DeviceId> group) const;
    bool reach_each_other(std::span<const DeviceId> group) const {
        return planner::reach_each_other(*machine_, group);
    }
    bool has_vendor_library(std::span<const DeviceId> group) const {
        return planner::has_vendor_library(*machine_, group);
    }

    // Equal pieces, `bytes` in all, gathered on each of `to`: until the last has them.
    int64_t gather_ns(std::span<const DeviceId> from, std::span<const DeviceId> to,
                      int64_t bytes) const;

private:
    void find_uniform();
    // What a message that is staged takes of `link`, which is null between devices without one.
    // Over an RDMA network to or from a card's memory it stops in the memory of both hosts, too.
    struct Staged {
        int64_t latency_ns = 0;
        double bandwidth = 1;
    };
    Staged staged(const Link* link) const;
    // The longest latency and the least bandwidth of the links that a sum crosses.
    struct Slowest {
        int64_t latency_ns = 0, bandwidth = INT64_MAX;
    };
    Slowest slowest(std::span<const DeviceId> group, bool ring) const;
    bool is_fabric(std::span<const DeviceId> group) const;
    int64_t lone_sum_ns(std::span<const DeviceId> group, int64_t bytes, SumForm form) const;
    int64_t shared_ns(std::span<const DeviceId> group, double of_link, bool ring) const;
    int64_t sum_over_nodes_ns(std::span<const DeviceId> group, int64_t bytes, SumForm form) const;

    const Machine* machine_;
    const Fabric* fabric_;  // the machine's, if it has one
    size_t count_;
    std::vector<const Link*> links_;
    std::vector<int64_t> fastest_;  // by device: of its links to others, in bytes a second
    std::vector<int> node_;         // by device: its host's number
    bool is_uniform_ = false;
    Uniform uniform_;
};

}  // namespace cleave::planner
