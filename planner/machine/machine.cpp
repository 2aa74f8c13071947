// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/machine.h"

#include <algorithm>
#include <utility>

#include "importer/weights/formats.h"
#include "planner/machine/vendor.h"

namespace cleave::planner {

std::string_view device_kind_name(DeviceKind kind) {
    if (const VendorFacts* vendor = vendor_of(kind)) return vendor->kind_name;
    switch (kind) {
        case DeviceKind::kHost: return "host";
        case DeviceKind::kSimt: return "simt";
        case DeviceKind::kSim: return "sim";
        default: return "null";
    }
}

std::string_view link_kind_name(LinkKind kind) {
    if (const VendorFacts* vendor = vendor_of(kind)) return vendor->own_link_name;
    switch (kind) {
        case LinkKind::kSameMemory: return "same_memory";
        case LinkKind::kPcie: return "pcie";
        default: return "network";
    }
}

int64_t DeviceInfo::flops(DType dtype) const {
    switch (dtype) {
        case DType::kF16:
        case DType::kBF16: return flops_f16;
        case DType::kF8E4M3: return flops_f8;
        default: return importer::find_quantized_type(dtype) ? flops_int8 : flops_f32;
    }
}

const Link* Machine::link(DeviceId from, DeviceId to) const {
    auto before = [](const Link& l, std::pair<DeviceId, DeviceId> key) {
        return std::pair(l.from, l.to) < key;
    };
    auto found = std::lower_bound(links.begin(), links.end(), std::pair(from, to), before);
    if (found != links.end() && found->from == from && found->to == to) return &*found;
    for (const Link& l : links)  // links of a hand-made machine may be in any order
        if (l.from == from && l.to == to) return &l;
    return nullptr;
}

Machine part_of(const Machine& machine, const std::vector<DeviceId>& devices) {
    Machine part;
    std::vector<int> domains(machine.domains.size(), -1);
    const auto domain = [&](int whole) {
        if (whole < 0) return -1;
        int& mine = domains[static_cast<size_t>(whole)];
        if (mine < 0) {
            mine = static_cast<int>(part.domains.size());
            part.domains.push_back(machine.domains[static_cast<size_t>(whole)]);
        }
        return mine;
    };
    std::vector<DeviceId> position(machine.devices.size());
    for (DeviceId id : devices) {
        position[id.index()] = DeviceId(part.devices.size());
        part.devices.push_back(machine.device(id));
        part.devices.back().memory_domain = domain(part.devices.back().memory_domain);
        part.name += (part.name.empty() ? "" : ",") + part.devices.back().name;
    }
    for (Link link : machine.links) {
        link.from = position[link.from.index()];
        link.to = position[link.to.index()];
        if (!link.from.valid() || !link.to.valid()) continue;
        link.domain = domain(link.domain);
        part.links.push_back(link);
    }
    if (std::ranges::any_of(part.links, [](const Link& l) { return l.kind == LinkKind::kNetwork; }))
        part.fabric = machine.fabric, part.network_measured = machine.network_measured;
    part.sum_skew_ns = machine.sum_skew_ns;
    std::ranges::stable_sort(part.links, {}, [](const Link& l) { return std::pair(l.from, l.to); });
    return part;
}

}  // namespace cleave::planner
