// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/link_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "planner/cost/kernel_times.h"
#include "planner/cost/node_sums.h"
#include "planner/cost/reached.h"
#include "planner/machine/vendor.h"

namespace cleave::planner {
namespace {

// Of NVLink, which the fitted all-reduces ran over (planner/machine/catalogue.cpp).
constexpr double kFittedLatency = 2500;

constexpr int64_t kStagedBandwidth = 6'000'000'000;  // through pageable memory of the hosts
constexpr int64_t kStagedLatency = 30'000;

// Of a message to another host: NCCL's getNetOverhead on Intel hosts (src/graph/search.cc).
constexpr int64_t kPostNs = 1'000;

int64_t nanoseconds(double bytes, double per_second) {
    return std::llround(bytes * 1e9 / per_second);
}

bool are_alike(const Link& a, const Link& b) {
    const auto facts = [](const Link& l) {
        return std::tie(l.kind, l.bandwidth, l.latency_ns, l.domain, l.peer_access,
                        l.exchange_bandwidth, l.exchange_latency_ns);
    };
    return facts(a) == facts(b);
}

}  // namespace

LinkTable::LinkTable(const Machine& machine)
    : machine_(&machine),
      fabric_(find_fabric(machine.fabric)),
      count_(machine.devices.size()),
      links_(count_ * count_, nullptr),
      fastest_(count_, 0) {
    for (const Link& link : machine.links) {
        links_[link.from.index() * count_ + link.to.index()] = &link;
        int64_t& fastest = fastest_[link.from.index()];
        fastest = std::max(fastest, link.bandwidth);
    }
    std::map<std::string_view, int> hosts;
    for (const DeviceInfo& device : machine.devices)
        node_.push_back(
            hosts.try_emplace(device.host, static_cast<int>(hosts.size())).first->second);
    find_uniform();
}

void LinkTable::find_uniform() {
    if (count_ < 2 || machine_->links.size() < count_ * (count_ - 1)) return;
    for (const Link& link : machine_->links) {
        if (link.domain >= 0) return;
        const bool inside = node_[link.from.index()] == node_[link.to.index()];
        const Link*& known = inside ? uniform_.inside : uniform_.between;
        if (!known) known = &link;
        if (!are_alike(*known, link)) return;
    }
    is_uniform_ = true;
}

bool LinkTable::tell_links(std::span<const int> classes) const {
    if (is_uniform_) return true;
    if (machine_->links.size() < count_ * (count_ - 1)) return false;
    std::map<std::tuple<int, int, bool>, const Link*> known;
    for (const Link& link : machine_->links) {
        if (link.domain >= 0) return false;
        const size_t a = link.from.index(), b = link.to.index();
        const Link* like =
            known.try_emplace({classes[a], classes[b], node_[a] == node_[b]}, &link).first->second;
        if (!are_alike(*like, link)) return false;
    }
    return true;
}

LinkTable::Staged LinkTable::staged(const Link* link) const {
    if (!link) return {kStagedLatency, static_cast<double>(kStagedBandwidth)};
    const auto rate = static_cast<double>(std::max<int64_t>(1, link->bandwidth));
    const bool is_rdma =
        link->kind == LinkKind::kNetwork && fabric_ && !fabric_->through_host &&
        (vendor_of(machine_->device(link->from)) || vendor_of(machine_->device(link->to)));
    if (!is_rdma) return {link->latency_ns, rate};
    return {link->latency_ns + kStagedLatency,
            1 / (1 / rate + 1 / static_cast<double>(kStagedBandwidth))};
}

LinkTable::Slowest LinkTable::slowest(std::span<const DeviceId> group, bool ring) const {
    Slowest slowest;
    const auto take = [&](const Link* link) {
        const auto measured = [](int64_t exchange, int64_t of_link) {
            return exchange > 0 ? exchange : of_link;
        };
        const Staged own = staged(link);
        slowest.latency_ns = std::max(
            slowest.latency_ns, measured(link ? link->exchange_latency_ns : 0, own.latency_ns));
        slowest.bandwidth = std::min(
            slowest.bandwidth,
            measured(link ? link->exchange_bandwidth : 0, static_cast<int64_t>(own.bandwidth)));
    };
    // A ring crosses neighbouring links only; the other forms use every pair.
    const size_t partners = ring ? 1 : group.size() - 1;
    if (is_uniform_ && !ring) {
        std::vector<int> nodes;
        for (DeviceId d : group) nodes.push_back(node(d));
        std::ranges::sort(nodes);
        if (std::ranges::adjacent_find(nodes) != nodes.end()) take(uniform_.inside);
        if (nodes.front() != nodes.back()) take(uniform_.between);
        return slowest;
    }
    for (size_t i = 0; i < group.size(); ++i)
        for (size_t k = 1; k <= partners; ++k) take(at(group[i], group[(i + k) % group.size()]));
    return slowest;
}

int64_t LinkTable::num_nodes(std::span<const DeviceId> devices) const {
    std::set<int> nodes;
    for (DeviceId d : devices) nodes.insert(node_[d.index()]);
    return static_cast<int64_t>(nodes.size());
}

bool LinkTable::sums_over_nodes(std::span<const DeviceId> group) const {
    if (machine_->fabric.empty() || num_nodes(group) < 2) return false;
    const VendorFacts* vendor = vendor_of(machine_->device(group[0]));
    return vendor && std::all_of(group.begin(), group.end(), [&](DeviceId d) {
               const DeviceInfo& device = machine_->device(d);
               return device.kind == DeviceKind::kSim && vendor_of(device) == vendor;
           });
}

// The nodes are alike but for their members: the fullest one sets the pace inside, the one with the
// fewest adapters outside.
int64_t LinkTable::sum_over_nodes_ns(std::span<const DeviceId> group, int64_t bytes,
                                     SumForm form) const {
    std::map<int, std::vector<DeviceId>> nodes;
    for (DeviceId d : group) nodes[node_[d.index()]].push_back(d);
    const Fabric& fabric = *fabric_;
    NodeGroup sum{static_cast<int64_t>(nodes.size()), 1, INT64_MAX, INFINITY, 0, 0};
    const std::vector<DeviceId>* fullest = &nodes.begin()->second;
    for (const auto& [node, members] : nodes) {
        if (members.size() > fullest->size()) fullest = &members;
        const DeviceId elsewhere =
            node == nodes.begin()->first ? nodes.rbegin()->second[0] : nodes.begin()->second[0];
        std::set<int> shared;
        int64_t own = 0;
        for (DeviceId d : members) {
            const Link* link = at(d, elsewhere);
            const int64_t latency = link ? link->latency_ns : kStagedLatency;
            sum.adapter_rate = std::min(
                sum.adapter_rate, static_cast<double>(link ? std::max<int64_t>(1, link->bandwidth)
                                                           : kStagedBandwidth));
            sum.slower = std::max(
                sum.slower, static_cast<double>(latency) / static_cast<double>(fabric.message_ns));
            if (link && link->domain >= 0)
                shared.insert(link->domain);
            else
                ++own;
        }
        sum.adapters = std::min(sum.adapters, own + static_cast<int64_t>(shared.size()));
    }
    sum.members = static_cast<int64_t>(fullest->size());
    if (form == SumForm::kHierarchical)
        sum.in_node_ns = lone_sum_ns(*fullest, bytes, SumForm::kRing);
    return node_sum_ns(fabric, sum, bytes, form);
}

SumForm all_reduce_form(bool through_host, bool is_prefill, size_t members) {
    if (!is_prefill) return SumForm::kOneShot;
    if (!through_host) return SumForm::kRing;
    return members > 2 ? SumForm::kTwoPhase : SumForm::kOneShot;
}

int64_t LinkTable::transfer_ns(DeviceId from, DeviceId to, int64_t bytes) const {
    if (from == to) return 0;
    const Link* link = at(from, to);
    double bandwidth = static_cast<double>(link ? link->bandwidth : kStagedBandwidth);
    return (link ? link->latency_ns : kStagedLatency) +
           nanoseconds(static_cast<double>(bytes), std::max(1.0, bandwidth));
}

bool LinkTable::runs_here(std::span<const DeviceId> group) const {
    return std::any_of(group.begin(), group.end(),
                       [&](DeviceId d) { return machine_->device(d).kind != DeviceKind::kSim; });
}

bool LinkTable::sums_by_executor(std::span<const DeviceId> group) const {
    return runs_here(group) || std::none_of(group.begin(), group.end(), [&](DeviceId d) {
               return vendor_of(machine_->device(d));
           });
}

// GPUs with a fast link between any two.
bool LinkTable::is_fabric(std::span<const DeviceId> group) const {
    for (DeviceId a : group) {
        if (!machine_->device(a).limits.has_warps()) return false;
        if (is_uniform_) {
            const Link* other = node(a) == node(group[0]) ? uniform_.inside : uniform_.between;
            if (a != group[0] && !is_own_link(other->kind)) return false;
            continue;
        }
        for (DeviceId b : group) {
            const Link* link = a == b ? nullptr : at(a, b);
            if (a != b && (!link || !is_own_link(link->kind))) return false;
        }
    }
    return true;
}

LinkTable::Demand LinkTable::demand(std::span<const DeviceId> devices) const {
    Demand demand;
    for (DeviceId a : devices)
        for (DeviceId b : devices) {
            const Link* link = a == b ? nullptr : at(a, b);
            if (link && link->domain >= 0 && link->bandwidth > demand.bandwidth)
                demand = {link->domain, link->bandwidth};
        }
    return demand;
}

int64_t LinkTable::all_reduce_ns(std::span<const DeviceId> group, int64_t bytes,
                                 SumForm form) const {
    const int64_t ns = lone_sum_ns(group, bytes, form);
    const bool waits = machine_->sum_skew_ns > 0 && group.size() > 1 &&
                       std::ranges::all_of(group, [&](DeviceId d) {
                           return machine_->device(d).limits.has_warps();
                       });
    if (!waits) return ns;
    return ns + std::llround(static_cast<double>(machine_->sum_skew_ns) *
                             std::log2(static_cast<double>(group.size())));
}

// By members that all come at once.
int64_t LinkTable::lone_sum_ns(std::span<const DeviceId> group, int64_t bytes, SumForm form) const {
    auto n = static_cast<int64_t>(group.size());
    if (n <= 1) return 0;
    if (form > SumForm::kRing) return sum_over_nodes_ns(group, bytes, form);
    const bool ring = form == SumForm::kRing;
    auto [latency, bandwidth] = slowest(group, ring);
    // All messages of the forms without an order, to members in other hosts.
    if (!ring && num_nodes(group) > 1) {
        const auto here = std::count_if(group.begin(), group.end(), [&](DeviceId d) {
            return node_[d.index()] == node_[group[0].index()];
        });
        latency += kPostNs * (n - here - 1);
    }
    auto b = static_cast<double>(std::max<int64_t>(1, bandwidth));
    auto p = static_cast<double>(bytes), m = static_cast<double>(n);
    if (is_fabric(group)) {
        // A mesh (Infinity Fabric, links all alike) sends to all others at once; a switch (NVLink)
        // has one rate for all, and where links differ the slowest sets the pace.
        bool mesh = vendor_of(at(group[0], group[1])->kind)->links_form_a_mesh;
        for (size_t i = 1; i < group.size(); ++i)
            mesh = mesh && at(group[0], group[i])->bandwidth == bandwidth;
        const Reached& reached = reached_by(machine_->device(group[0]));
        return std::llround(
            SumTimes::of(reached.sums)
                .ns(n, p, reached.sum_latency * static_cast<double>(latency) / kFittedLatency,
                    b * (mesh ? m - 1 : 1)));
    }
    // Bytes that cross a link of the form, and so often its latency.
    const bool one_shot = form == SumForm::kOneShot;
    const double of_link = one_shot ? p : ring ? 2 * p * (m - 1) / m : 2 * p / m;
    const int64_t messages = one_shot ? 1 : ring ? n - 1 : 2;
    const auto own = nanoseconds(ring ? of_link : of_link * (m - 1), b);
    return messages * latency + std::max(own, shared_ns(group, of_link, ring));
}

// Until so many bytes have crossed each link of a sum, where links share a domain: a PCIe root, an
// adapter. What devices of one memory exchange was measured with all of them at it.
int64_t LinkTable::shared_ns(std::span<const DeviceId> group, double of_link, bool ring) const {
    if (is_uniform_) return 0;
    std::map<int, double> bytes;
    const size_t partners = ring ? 1 : group.size() - 1;
    for (size_t i = 0; i < group.size(); ++i)
        for (size_t k = 1; k <= partners; ++k) {
            const Link* link = at(group[i], group[(i + k) % group.size()]);
            if (link && link->domain >= 0 && link->kind != LinkKind::kSameMemory)
                bytes[link->domain] += of_link;
        }
    int64_t longest = 0;
    for (const auto& [domain, sum] : bytes) {
        const int64_t rate = machine_->domains[static_cast<size_t>(domain)].bandwidth;
        longest =
            std::max(longest, nanoseconds(sum, static_cast<double>(std::max<int64_t>(1, rate))));
    }
    return longest;
}

int64_t LinkTable::gather_ns(std::span<const DeviceId> from, std::span<const DeviceId> to,
                             int64_t bytes) const {
    int64_t slowest = 0;
    if (from.empty()) return 0;
    const int64_t piece = bytes / static_cast<int64_t>(from.size());
    for (DeviceId receiver : to) {
        int64_t time = 0;
        for (DeviceId d : from) {
            if (d == receiver) continue;
            const Staged way = staged(at(d, receiver));
            time = std::max(time, way.latency_ns) +
                   nanoseconds(static_cast<double>(piece), way.bandwidth);
        }
        slowest = std::max(slowest, time);
    }
    return slowest;
}

}  // namespace cleave::planner
