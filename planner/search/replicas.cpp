// SPDX-License-Identifier: Apache-2.0
#include "planner/search/replicas.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "planner/search/stage_search.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

using Devices = std::vector<DeviceId>;

bool alike(const DeviceInfo& a, const DeviceInfo& b) {
    const auto facts = [](const DeviceInfo& d) {
        const DeviceLimits& l = d.limits;
        const MeasuredRates& m = d.measured;
        return std::tuple(
            std::tie(d.kind, d.arch, d.model, d.collectives, d.memory_bytes, d.reserved_bytes,
                     d.collectives_bytes, d.memory_bandwidth, d.flops_f32, d.flops_f16, d.flops_f8,
                     d.flops_int8, d.launch_overhead_ns, d.host_cores),
            std::tie(l.shared_memory_per_block, l.registers_per_block, l.max_threads_per_block,
                     l.warp_width, l.num_compute_units, l.max_grid),
            std::tie(m.bandwidth, m.bandwidth_alone, m.widening, m.cache_bytes, m.cache_bandwidth,
                     m.flops_f32, m.flops_narrow, m.attention_bandwidth, m.attention_flops,
                     m.launch_ns, m.launch_alone_ns));
    };
    return facts(a) == facts(b);
}

// Whether a plan of one is a plan of the other, with the same times.
bool alike(const Machine& a, const Machine& b) {
    const auto facts = [](const Link& l) {
        return std::tie(l.from, l.to, l.kind, l.bandwidth, l.latency_ns, l.domain, l.peer_access,
                        l.exchange_bandwidth, l.exchange_latency_ns);
    };
    return std::ranges::equal(a.devices, b.devices,
                              [](const DeviceInfo& x, const DeviceInfo& y) {
                                  return alike(x, y) && x.memory_domain == y.memory_domain;
                              }) &&
           std::ranges::equal(a.links, b.links, {}, facts, facts) &&
           std::ranges::equal(a.domains, b.domains, {}, &BandwidthDomain::bandwidth,
                              &BandwidthDomain::bandwidth);
}

// `count` blocks of `size`; each within a host where the hosts have enough such blocks.
std::vector<Devices> blocks_of(const Machine& machine, const Devices& kind, size_t count,
                               size_t size) {
    std::vector<Devices> hosts;
    std::map<std::string, size_t> known;
    for (DeviceId d : kind) {
        const auto [at, fresh] = known.try_emplace(machine.device(d).host, hosts.size());
        if (fresh) hosts.emplace_back();
        hosts[at->second].push_back(d);
    }
    size_t within = 0;
    for (const Devices& host : hosts) within += host.size() / size;
    if (within < count) hosts = {kind};
    std::vector<Devices> blocks;
    for (const Devices& host : hosts)
        for (size_t i = 0; i + size <= host.size() && blocks.size() < count; i += size)
            blocks.emplace_back(host.begin() + static_cast<std::ptrdiff_t>(i),
                                host.begin() + static_cast<std::ptrdiff_t>(i + size));
    return blocks;
}

Division divide(const Machine& machine, const std::vector<Devices>& kinds, size_t count) {
    std::vector<Devices> members(count);
    for (const Devices& kind : kinds) {
        if (kind.size() < count) continue;
        const std::vector<Devices> blocks = blocks_of(machine, kind, count, kind.size() / count);
        for (size_t i = 0; i < count; ++i)
            members[i].insert(members[i].end(), blocks[i].begin(), blocks[i].end());
    }
    Division division;
    std::set<DeviceId> used;
    for (Devices& part : members) std::ranges::sort(part);
    division.parts = parts_of(machine, members);
    const Machine first = division.parts.front();
    for (size_t i = count; i-- > 0;)
        if (alike(first, division.parts[i]))
            used.insert(members[i].begin(), members[i].end());
        else
            division.parts.erase(division.parts.begin() + static_cast<std::ptrdiff_t>(i));
    for (size_t d = 0; d < machine.devices.size(); ++d)
        if (!used.contains(DeviceId(d))) division.spare.push_back(machine.devices[d].name);
    return division;
}

// Whether the forced shape is possible on so many devices.
bool allows(const PlanOptions& options, size_t devices) {
    const auto tp = static_cast<size_t>(options.tensor_parallel);
    const auto pp = static_cast<size_t>(options.pipeline_stages);
    if (tp > 0 && pp > 0) return tp * pp == devices;
    return tp > 0 ? devices % tp == 0 : pp <= devices;
}

// The devices of a part that the forced shape takes, at least one and near to `devices`.
size_t nearest_allowed(const PlanOptions& options, size_t devices) {
    const auto tp = static_cast<size_t>(std::max(1, options.tensor_parallel));
    const auto pp = static_cast<size_t>(std::max(1, options.pipeline_stages));
    if (options.pipeline_stages > 0) return tp * pp;
    return std::max(tp, devices / tp * tp);
}

// "$tensor_parallel 2 x $pipeline_stages 3".
std::string shape_flags(const PlanOptions& options) {
    std::string text;
    if (options.tensor_parallel > 0)
        text = fmt::format("$tensor_parallel {}", options.tensor_parallel);
    if (options.pipeline_stages > 0)
        text += fmt::format("{}$pipeline_stages {}", text.empty() ? "" : " x ",
                            options.pipeline_stages);
    return text;
}

}  // namespace

std::vector<Devices> kinds_of(const Machine& machine) {
    std::vector<Devices> kinds;
    for (size_t d = 0; d < machine.devices.size(); ++d) {
        const auto same = std::ranges::find_if(kinds, [&](const Devices& kind) {
            return alike(machine.devices[d], machine.device(kind[0]));
        });
        (same == kinds.end() ? kinds.emplace_back() : *same).emplace_back(d);
    }
    return kinds;
}

std::vector<Machine> parts_of(const Machine& machine, const std::vector<Devices>& members) {
    std::vector<size_t> part(machine.devices.size(), members.size());
    for (size_t p = 0; p < members.size(); ++p)
        for (DeviceId d : members[p]) part[d.index()] = p;
    std::vector<std::set<size_t>> users(machine.domains.size());
    const auto use = [&](int domain, size_t p) {
        if (domain >= 0 && p < members.size()) users[static_cast<size_t>(domain)].insert(p);
    };
    for (size_t d = 0; d < machine.devices.size(); ++d)
        use(machine.devices[d].memory_domain, part[d]);
    std::vector<std::vector<Link>> inner(members.size());
    for (const Link& link : machine.links) {
        const size_t p = part[link.from.index()];
        if (p != part[link.to.index()] || p == members.size()) continue;
        inner[p].push_back(link);
        use(link.domain, p);
    }
    Machine shared{
        machine.name,        machine.devices,         {}, machine.domains, machine.fabric,
        machine.sum_skew_ns, machine.network_measured};
    for (size_t i = 0; i < users.size(); ++i)
        shared.domains[i].bandwidth /= std::max<int64_t>(1, std::ssize(users[i]));
    std::vector<Machine> parts;
    for (size_t p = 0; p < members.size(); ++p) {
        shared.links = std::move(inner[p]);
        parts.push_back(part_of(shared, members[p]));
    }
    return parts;
}

void check_replicas(const Machine& machine, const Workload& workload, const PlanOptions& options) {
    const auto replicas = options.replicas;
    if (replicas < 0) throw UserError("$replicas {}: the number of replicas is positive", replicas);
    if (row_of(options.objective).fewest_for_load && options.most_users)
        throw UserError(
            "$objective {}: say how many users it is to serve at once, with $concurrency",
            row_of(options.objective).name);
    if (row_of(options.objective).fewest_for_load && !options.pins.empty())
        throw UserError(
            "$objective {}: it chooses the devices, and pins name them; leave one of both out",
            row_of(options.objective).name);
    if (replicas == 1 && !options.most_users) return;
    if (!row_of(options.objective).serves)
        throw UserError(
            "$replicas: a plan for {} is of one replica; give $objective throughput for several",
            row_of(options.objective).name);
    if (replicas > std::ssize(machine.devices))
        throw UserError("$replicas {}: {} devices have room for {} at most", replicas,
                        machine.devices.size(), machine.devices.size());
    if (!options.most_users && replicas > workload.batch)
        throw UserError("$replicas {}: {} users leave some of them idle; give $replicas {} or less",
                        replicas, workload.batch, workload.batch);
    if (replicas > 1 && !options.pins.empty())
        throw UserError(
            "$replicas {}: pins name devices, and each replica has its own; leave out one of both",
            replicas);
}

std::vector<Division> divisions(const Machine& machine, const PlanOptions& options, int64_t users) {
    std::vector<Division> found;
    const std::vector<Devices> kinds = kinds_of(machine);
    const auto most = options.pins.empty() ? std::min(users, std::ssize(machine.devices)) : 1;
    // Of many devices, of the numbers of parts that give parts of one size, the largest, where it
    // divides each kind or gives a power of two of devices; of few all: one less may leave each
    // with a number of users that its kernels like better.
    const bool few = std::ssize(machine.devices) <= kFewDevices;
    std::vector<size_t> last;
    for (int64_t count = most; count > 1; --count) {
        if (options.replicas > 0 && count != options.replicas) continue;
        std::vector<size_t> sizes;
        for (const Devices& kind : kinds) sizes.push_back(kind.size() / static_cast<size_t>(count));
        const size_t all = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
        if (options.replicas > 0 && all > 0 && !allows(options, all))
            throw UserError(
                "$replicas {}: of {} devices each has {}, which {} does not take; give {} "
                "devices, or another number",
                count, machine.devices.size(), all, shape_flags(options),
                static_cast<size_t>(count) * nearest_allowed(options, all));
        if ((!few && last == sizes) || all == 0 || !allows(options, all)) continue;
        const bool even = std::ranges::all_of(
            kinds, [&](const Devices& kind) { return std::ssize(kind) % count == 0; });
        if (!few && !even && !std::has_single_bit(all) && options.replicas == 0) continue;
        last = sizes;
        Division division = divide(machine, kinds, static_cast<size_t>(count));
        if (division.parts.size() > 1) found.push_back(std::move(division));
    }
    if (options.replicas == 1 ||
        (options.replicas == 0 && (found.empty() || allows(options, machine.devices.size()))))
        found.push_back({{machine}, {}});
    if (found.empty() || (options.replicas > 0 && std::ssize(found[0].parts) != options.replicas))
        throw UserError(
            "$replicas {}: the devices make no {} parts with as many of each kind, joined alike; "
            "give devices that do with $devices, or another number",
            options.replicas, options.replicas);
    return found;
}

}  // namespace cleave::planner
