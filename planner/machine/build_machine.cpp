// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/build_machine.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "planner/machine/catalogue.h"
#include "planner/machine/fabric.h"
#include "planner/machine/numa_nodes.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

constexpr int64_t kGiga = 1'000'000'000;
constexpr int64_t kPcieBandwidth = 25 * kGiga;  // PCIe 4.0 x16, effective
constexpr int64_t kPcieLatency = 8'000;
// Between hosts of which no fabric is known: devices that are here, and others.
constexpr int64_t kNetworkBandwidth = 45 * kGiga;
constexpr int64_t kNetworkLatency = 12'000;
constexpr int64_t kHostLatency =
    3'000;  // waking the other device's worker, where nothing was measured
constexpr int64_t kHostReserved = 0;
constexpr int64_t kGpuReserved = int64_t{512}
                                 << 20;  // context, modules and library work space of one process

DeviceInfo sim_device(const DeviceSpec& spec) {
    const CatalogueModel& model = *find_model(spec.arch);
    DeviceInfo d;
    d.name = spec.text;
    d.kind = DeviceKind::kSim;
    d.arch = model.arch;
    d.model = model.name;
    d.index = spec.index;
    const int node = spec.index / (spec.per_node > 0 ? spec.per_node : model.per_node);
    d.host = !spec.machine.empty() ? spec.machine
             : node == 0           ? "localhost"
                                   : "node" + std::to_string(node);
    d.memory_bytes = model.memory_mib << 20;
    d.reserved_bytes = model.name == "host" ? kHostReserved : kGpuReserved;
    set_rates(model, d);
    d.launch_overhead_ns = model.name == "host" ? 2'000 : 3'000;
    d.limits = limits_of(model);
    return d;
}

// `count` devices share the host's memory, cores and bandwidth. Alone at work, one has all the
// cores; those of one stage divide them, which the bandwidth domain accounts for.
DeviceInfo host_device(const DeviceSpec& spec, const HostFacts& host, int count) {
    DeviceInfo d;
    d.name = spec.text;
    d.kind = spec.kind;
    d.arch = host.arch;
    d.model = "host";
    d.index = spec.index;
    d.memory_bytes = host.memory_bytes / count;
    d.memory_bandwidth = std::max<int64_t>(1, host.memory_bandwidth);
    d.flops_f32 = std::max<int64_t>(1, host.flops_f32);
    d.flops_f16 = d.flops_f8 = d.flops_int8 = d.flops_f32;
    d.launch_overhead_ns = 2'000;
    d.limits.shared_memory_per_block =
        4 << 20;  // of second- and third-level cache; kernels ask for about 1 MiB
    d.limits.max_threads_per_block = 1;
    d.limits.warp_width = 1;
    d.limits.num_compute_units = std::max(1, host.num_cores);
    if (const MeasuredRates& m = host.calibration.rates; m.bandwidth > 0) {
        d.measured = m;
        d.memory_bandwidth = m.bandwidth;
        d.flops_f32 = m.flops_f32;
        d.flops_f16 = d.flops_f8 = d.flops_int8 = m.flops_narrow;
        d.launch_overhead_ns = m.launch_ns;
    }
    if (spec.kind == DeviceKind::kSimt) {
        // The interpreter runs every GPU thread in turn; two orders slower than compiled host code.
        d.arch = spec.arch;
        d.model = spec.arch;
        d.limits = limits_of(gpu_arch(spec.arch));
        d.measured = {};
        d.flops_f32 = d.flops_f16 = d.flops_f8 = d.flops_int8 =
            std::max<int64_t>(1, d.flops_f32 / 100);
        d.memory_bandwidth = std::max<int64_t>(1, d.memory_bandwidth / 100);
    }
    return d;
}

bool on_host_memory(const DeviceInfo& d) {
    return d.kind == DeviceKind::kHost || d.kind == DeviceKind::kSimt ||
           d.kind == DeviceKind::kNull;
}

// A card is one device or several logical ones, under any of its names.
void check_cards_once(const std::vector<DeviceSpec>& specs, const Machine& machine) {
    std::map<std::pair<DeviceKind, int>, size_t> first;
    for (size_t d = 0; d < specs.size(); ++d) {
        if (!is_card(specs[d].kind)) continue;
        auto [at, fresh] = first.try_emplace({specs[d].kind, machine.devices[d].index}, d);
        if (!fresh && (specs[d].logical < 0 || specs[at->second].logical < 0))
            throw UserError(
                "$devices: {} and {} are one card, whose memory would be counted twice; name it "
                "once, or take logical devices of it, for example {}[{}]/0-1",
                specs[at->second].text, specs[d].text, device_kind_name(specs[d].kind),
                machine.devices[d].index);
    }
}

// Logical devices of one card have equal parts of its memory and share its bandwidth.
void share_cards(const std::vector<DeviceSpec>& specs, Machine& machine) {
    std::map<std::pair<DeviceKind, int>, std::vector<size_t>> cards;
    for (size_t d = 0; d < specs.size(); ++d)
        if (specs[d].logical >= 0) cards[{specs[d].kind, machine.devices[d].index}].push_back(d);
    for (const auto& [card, devices] : cards) {
        const auto count = static_cast<int64_t>(devices.size());
        machine.domains.push_back(
            {fmt::format("memory of {}[{}]", device_kind_name(card.first), card.second),
             machine.devices[devices[0]].memory_bandwidth});
        for (size_t d : devices) {
            DeviceInfo& device = machine.devices[d];
            device.memory_bytes /= count;
            device.reserved_bytes /= count;
            device.memory_domain = static_cast<int>(machine.domains.size()) - 1;
        }
    }
}

int64_t bytes_per_second(const Fabric& fabric) {
    return static_cast<int64_t>(fabric.adapter_gb * 1e9);
}

Link make_link(const Machine& machine, const HostCalibration& calibration,
               const GpuDescriptions* gpus, DeviceId from, DeviceId to) {
    const DeviceInfo& a = machine.device(from);
    const DeviceInfo& b = machine.device(to);
    Link link{from, to};
    if (a.host != b.host) {
        const Fabric* fabric = find_fabric(machine.fabric);
        link.kind = LinkKind::kNetwork;
        link.bandwidth = fabric ? bytes_per_second(*fabric) : kNetworkBandwidth;
        link.latency_ns = fabric ? fabric->message_ns : kNetworkLatency;
    } else if (on_host_memory(a) && on_host_memory(b)) {
        link.kind = LinkKind::kSameMemory;
        link.bandwidth = std::max<int64_t>(
            1, std::min(a.memory_bandwidth, b.memory_bandwidth) / 2);  // read and written
        link.latency_ns = kHostLatency;
        link.domain = a.memory_domain;
        if (a.measured.bandwidth > 0 && b.measured.bandwidth > 0) {
            link.bandwidth = calibration.transfer_bandwidth;
            link.latency_ns = calibration.transfer_latency_ns;
            link.exchange_bandwidth = calibration.exchange_bandwidth;
            link.exchange_latency_ns = calibration.exchange_latency_ns;
        }
    } else if (is_card(a.kind) && a.kind == b.kind && a.index == b.index) {
        link.kind = LinkKind::kSameMemory;
        link.bandwidth = std::max<int64_t>(1, a.memory_bandwidth / 2);  // read and written
        link.latency_ns = a.launch_overhead_ns;
        link.domain = a.memory_domain;
    } else if (is_card(a.kind) && a.kind == b.kind && gpus) {
        link = gpus->link(a, b);
        link.from = from;
        link.to = to;
    } else if (a.kind == DeviceKind::kSim && b.kind == DeviceKind::kSim && a.model == b.model) {
        const CatalogueModel& model = *find_model(a.model);
        link.kind = model.peer;
        link.bandwidth = static_cast<int64_t>(model.peer_gb * 1e9);
        link.latency_ns = model.peer_latency_ns;
        // The two dies of a card are joined inside the package.
        if (model.dies_per_card > 1 &&
            a.index / model.dies_per_card == b.index / model.dies_per_card)
            link.bandwidth = static_cast<int64_t>(model.die_gb * 1e9);
    } else {
        link.kind = LinkKind::kPcie;
        link.bandwidth = kPcieBandwidth;
        link.latency_ns = kPcieLatency;
    }
    return link;
}

// What joins the catalogue devices, where these are in several nodes: the fabric of that name, or
// the slowest of those that their models have.
std::string fabric_of(const Machine& machine, std::string_view name) {
    std::map<std::string, const DeviceInfo*> hosts;
    for (const DeviceInfo& d : machine.devices)
        if (d.kind == DeviceKind::kSim) hosts.try_emplace(d.host, &d);
    if (!name.empty() && !find_fabric(name))
        throw UserError("$fabric {}: no such network; known are {}", name, fabric_names());
    if (hosts.size() < 2) {
        if (!name.empty())
            throw UserError(
                "$fabric {}: it joins nodes of catalogue devices, and these are not in several; "
                "leave it out, or give more nodes: sim:h100[0-15], sim:h100[0-7]@a,sim:h100[0-7]@b",
                name);
        return "";
    }
    if (!name.empty()) return std::string(name);
    const Fabric* slowest = nullptr;
    for (const DeviceInfo& d : machine.devices) {
        if (d.kind != DeviceKind::kSim) continue;
        const Fabric* fabric = find_fabric(find_model(d.model)->fabric);
        if (!fabric)
            throw UserError(
                "$devices: {} and {} are in two nodes, and servers with {} have no network in "
                "common; say which joins yours: $fabric {}",
                hosts.begin()->second->name, hosts.rbegin()->second->name, d.model, fabric_names());
        if (!slowest || fabric->adapter_gb < slowest->adapter_gb) slowest = fabric;
    }
    return std::string(slowest->name);
}

// The network adapters of the nodes: their domain by device, -1 for a device that has one of its
// own.
std::vector<int> share_adapters(const std::vector<DeviceSpec>& specs, Machine& machine) {
    std::vector<int> domains(machine.devices.size(), -1);
    const Fabric* fabric = find_fabric(machine.fabric);
    if (!fabric) return domains;
    std::map<std::tuple<std::string, std::string, int>, int> known;
    for (size_t d = 0; d < machine.devices.size(); ++d) {
        const DeviceInfo& device = machine.devices[d];
        if (device.kind != DeviceKind::kSim) continue;
        const CatalogueModel& model = *find_model(device.model);
        const int per_node = specs[d].per_node > 0 ? specs[d].per_node : model.per_node;
        // Of a node of another size as many to a device, and one at least.
        const int adapters =
            fabric->one_adapter ? 1 : std::max(1, per_node * model.adapters / model.per_node);
        if (adapters >= per_node) continue;
        const int adapter = device.index % per_node * adapters / per_node;
        // All models of a node share its only one.
        auto [at, fresh] =
            known.try_emplace({device.host, fabric->one_adapter ? "" : device.model, adapter},
                              static_cast<int>(machine.domains.size()));
        if (fresh)
            machine.domains.push_back(
                {fmt::format("network adapter {} of {}", adapter, device.host),
                 bytes_per_second(*fabric)});
        domains[d] = at->second;
    }
    return domains;
}

// Catalogue cards whose links inside their node are PCIe, by node.
std::map<std::string, std::vector<DeviceId>> pcie_cards(const Machine& machine) {
    std::map<std::string, std::set<DeviceId>> found;
    for (const Link& link : machine.links) {
        const DeviceInfo &from = machine.device(link.from), &to = machine.device(link.to);
        if (link.kind == LinkKind::kPcie && link.domain < 0 && from.host == to.host &&
            from.kind == DeviceKind::kSim && to.kind == DeviceKind::kSim && from.model != "host" &&
            to.model != "host")
            found[from.host].insert(link.from);
    }
    std::map<std::string, std::vector<DeviceId>> nodes;
    for (const auto& [node, cards] : found) nodes[node].assign(cards.begin(), cards.end());
    return nodes;
}

// What a link that so many cards share carries, where one card's own carries `own` bytes/s. Sums of
// 16 MiB of two L40S go at 18.8 of 25 GB/s, of four at 15.1 and 20.0, of eight, which are on two
// processors, at 14.9 and 11.6 (ai-dynamo/aiconfigurator, l40s: vLLM, then TensorRT-LLM).
int64_t shared_rate(int64_t own, int cards) { return cards <= 4 ? own / 4 * 3 : own / 2; }

// The error for a device that is not there lists all that the user asked for.
DeviceInfo describe(const GpuDescriptions& gpus, const DeviceSpec& spec,
                    const std::vector<DeviceSpec>& specs) {
    try {
        return gpus.describe(spec);
    } catch (const UserError& error) {
        std::string declared;
        for (const DeviceSpec& s : specs) declared += (declared.empty() ? "" : ", ") + s.text;
        throw UserError("{} (declared: {})", error.what(), declared);
    }
}

}  // namespace

Machine build_machine(const std::vector<DeviceSpec>& as_given, const HostFacts& host,
                      const GpuDescriptions* gpus, const Wiring& wiring) {
    const std::vector<DeviceSpec> specs = with_numa_nodes(as_given, host);
    Machine machine;
    int num_host = 0;
    for (const DeviceSpec& spec : specs)
        num_host += (spec.kind == DeviceKind::kHost && !spec.numa) ||
                    spec.kind == DeviceKind::kSimt || spec.kind == DeviceKind::kNull;
    if (num_host > 0) machine.domains.push_back({"memory of this host", host.memory_bandwidth});
    std::map<std::pair<std::string, std::string>, int> sim_hosts;
    for (const DeviceSpec& spec : specs) {
        machine.name += (machine.name.empty() ? "" : ",") + spec.text;
        if (spec.kind != DeviceKind::kSim && !spec.machine.empty())
            throw UserError(
                "{} is a device of '{}', which only a process there can describe; start one on "
                "each host (mpirun), or plan with sim:MODEL[0]@HOST",
                spec.text, spec.machine);
        if (spec.kind == DeviceKind::kSim) {
            if (!find_model(spec.arch))
                throw UserError("{}: the catalogue has no model '{}'; it has {}", spec.text,
                                spec.arch, catalogue_names());
            machine.devices.push_back(sim_device(spec));
            if (spec.arch == "host") {  // CPU devices of one server share its memory
                auto [at, fresh] = sim_hosts.try_emplace({spec.arch, machine.devices.back().host},
                                                         static_cast<int>(machine.domains.size()));
                if (fresh)
                    machine.domains.push_back({"memory of " + machine.devices.back().host,
                                               machine.devices.back().memory_bandwidth});
                machine.devices.back().memory_domain = at->second;
            }
        } else if (is_card(spec.kind)) {
            if (!gpus)
                throw UserError(
                    "{}: a real {} device is described by its driver, which is not part of this "
                    "machine's description; use sim:MODEL to plan without the device",
                    spec.text, device_kind_name(spec.kind));
            machine.devices.push_back(describe(*gpus, spec, specs));
        } else if (spec.numa) {
            DeviceInfo d = host_device(spec, host, 1);
            keep_to_node(d, host, spec.index);
            d.memory_domain = static_cast<int>(machine.domains.size());
            machine.domains.push_back(
                {fmt::format("memory of NUMA node {}", spec.index), d.memory_bandwidth});
            machine.devices.push_back(std::move(d));
        } else {
            machine.devices.push_back(host_device(spec, host, num_host));
            machine.devices.back().memory_domain = 0;
        }
    }
    check_cards_once(specs, machine);
    share_cards(specs, machine);
    machine.fabric = fabric_of(machine, wiring.fabric);
    const std::vector<int> adapters = share_adapters(specs, machine);
    for (size_t a = 0; a < machine.devices.size(); ++a)
        for (size_t b = 0; b < machine.devices.size(); ++b)
            if (a != b)
                machine.links.push_back(
                    make_link(machine, host.calibration, gpus, DeviceId(a), DeviceId(b)));
    for (Link& link : machine.links)
        if (link.kind == LinkKind::kNetwork) link.domain = adapters[link.from.index()];
    const auto num_gpus = std::ranges::count_if(
        machine.devices, [](const DeviceInfo& d) { return d.limits.has_warps(); });
    if (wiring.sum_skew_ns > 0 && num_gpus < 2)
        throw UserError(
            "$sum_skew {}: it is of sums of GPUs, and the devices have not two of them; leave it "
            "out",
            static_cast<double>(wiring.sum_skew_ns) / 1e3);
    machine.sum_skew_ns = wiring.sum_skew_ns;
    if (wiring.pcie_group == 0) return machine;
    std::optional<Machine> grouped = with_pcie_groups(machine, wiring.pcie_group);
    if (!grouped)
        throw UserError(
            "$pcie_group {}: it is of PCIe cards of the catalogue, and no node has two of them; "
            "leave it out, or give $devices such as sim:l40s[0-7]",
            wiring.pcie_group);
    return *std::move(grouped);
}

std::optional<Machine> with_pcie_groups(const Machine& machine, int cards) {
    CLEAVE_CHECK(cards > 0);
    const auto nodes = pcie_cards(machine);
    if (nodes.empty()) return std::nullopt;
    Machine grouped = machine;
    std::map<DeviceId, int> domains;
    for (const auto& [node, members] : nodes)
        for (size_t i = 0; i < members.size(); ++i) {
            const size_t group = i / static_cast<size_t>(cards);
            if (i % static_cast<size_t>(cards) == 0)
                grouped.domains.push_back({fmt::format("PCIe link {} of {}", group, node), 0});
            domains[members[i]] = static_cast<int>(grouped.domains.size()) - 1;
        }
    std::map<int, int> sizes;
    for (const auto& [card, domain] : domains) ++sizes[domain];
    for (Link& link : grouped.links) {
        const auto from = domains.find(link.from);
        if (link.kind != LinkKind::kPcie || from == domains.end() || !domains.count(link.to))
            continue;
        link.domain = from->second;
        int64_t& rate = grouped.domains[static_cast<size_t>(link.domain)].bandwidth;
        rate = std::max(rate, shared_rate(link.bandwidth, sizes[link.domain]));
    }
    return grouped;
}

}  // namespace cleave::planner
