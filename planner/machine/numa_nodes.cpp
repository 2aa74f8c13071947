// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/numa_nodes.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "runtime/base/errors.h"

namespace cleave::planner {

std::vector<DeviceSpec> with_numa_nodes(const std::vector<DeviceSpec>& specs,
                                        const HostFacts& host) {
    std::vector<DeviceSpec> named;
    std::set<std::string> seen;
    for (const DeviceSpec& spec : specs) {
        const auto nodes = static_cast<int>(host.numa_nodes.size());
        if (!spec.numa) {
            named.push_back(spec);
            continue;
        }
        if (nodes == 0)
            throw UserError("$devices: {}: which NUMA nodes this host has is not known here",
                            spec.text);
        if (spec.index >= nodes)
            throw UserError(
                "$devices: {}: this host has {} with cores for this process{}", spec.text,
                nodes == 1 ? "one NUMA node" : fmt::format("{} NUMA nodes", nodes),
                nodes == 1 ? ", host[0]@numa" : fmt::format(", host[0-{}]@numa", nodes - 1));
        const int first = std::max(spec.index, 0);
        for (int node = first; node < (spec.index < 0 ? nodes : first + 1); ++node) {
            DeviceSpec one = spec;
            one.index = node;
            if (spec.index < 0) one.text = fmt::format("host[{}]@numa", node);
            if (!seen.insert(one.text).second)
                throw UserError("$devices: {} is given twice; each device can be used once",
                                one.text);
            named.push_back(one);
        }
    }
    if (!seen.empty())
        for (const DeviceSpec& spec : specs)
            if (spec.kind == DeviceKind::kHost && !spec.numa)
                throw UserError(
                    "$devices: {} has the cores of every NUMA node, and {} those of one; name one "
                    "kind of them",
                    spec.text, *seen.begin());
    return named;
}

void keep_to_node(DeviceInfo& device, const HostFacts& host, int node) {
    NumaNode all;
    for (const NumaNode& n : host.numa_nodes) {
        all.num_cores += n.num_cores;
        all.memory_bytes += n.memory_bytes;
    }
    const NumaNode& own = host.numa_nodes[static_cast<size_t>(node)];
    const double part = static_cast<double>(own.num_cores) / std::max(1, all.num_cores);
    const auto share = [part](int64_t& rate) {
        if (rate > 0) rate = std::max<int64_t>(1, std::llround(static_cast<double>(rate) * part));
    };
    device.memory_bytes =
        std::llround(static_cast<double>(host.memory_bytes) *
                     (static_cast<double>(own.memory_bytes) /
                      static_cast<double>(std::max<int64_t>(1, all.memory_bytes))));
    device.host_cores = std::max(1, host.num_cores);
    MeasuredRates& m = device.measured;
    for (int64_t* rate :
         {&device.memory_bandwidth, &device.flops_f32, &device.flops_f16, &device.flops_f8,
          &device.flops_int8, &device.limits.num_compute_units, &m.bandwidth, &m.widening,
          &m.cache_bytes, &m.cache_bandwidth, &m.flops_f32, &m.flops_narrow, &m.attention_bandwidth,
          &m.attention_flops})
        share(*rate);
    m.bandwidth_alone = std::min(m.bandwidth_alone, m.bandwidth);
}

}  // namespace cleave::planner
