// SPDX-License-Identifier: Apache-2.0
#include "planner/machine/join_machines.h"

#include <algorithm>
#include <map>

#include "runtime/base/errors.h"

namespace cleave::planner {

Machine join_machines(const std::vector<HostMachine>& hosts,
                      const std::vector<std::vector<NetworkRate>>& rates,
                      const std::vector<std::string>& order) {
    Machine all;
    all.network_measured = hosts.size() > 1;
    std::map<std::string, size_t> place;
    for (const std::string& name : order) {
        CLEAVE_CHECK(place.emplace(name, place.size()).second) << name << " is named twice";
        all.name += (all.name.empty() ? "" : ",") + name;
    }
    all.devices.resize(order.size());
    std::vector<size_t> host_of(order.size(), hosts.size());
    std::vector<int> adapters;
    for (size_t h = 0; h < hosts.size(); ++h) {
        const Machine& part = hosts[h].machine;
        const int first = static_cast<int>(all.domains.size());
        const auto domain = [&](int d) { return d < 0 ? -1 : first + d; };
        for (BandwidthDomain shared : part.domains) {
            shared.name += " (" + hosts[h].host + ")";
            all.domains.push_back(shared);
        }
        all.sum_skew_ns = std::max(all.sum_skew_ns, part.sum_skew_ns);
        std::vector<DeviceId> whole;
        for (DeviceInfo device : part.devices) {
            const auto at = place.find(device.name);
            CLEAVE_CHECK(at != place.end() && host_of[at->second] == hosts.size())
                << hosts[h].host << " describes " << device.name;
            device.host = hosts[h].host;
            device.memory_domain = domain(device.memory_domain);
            host_of[at->second] = h;
            whole.emplace_back(at->second);
            all.devices[at->second] = std::move(device);
        }
        for (Link link : part.links) {
            link.from = whole[link.from.index()];
            link.to = whole[link.to.index()];
            link.domain = domain(link.domain);
            all.links.push_back(link);
        }
        int64_t most = 0;
        for (size_t to = 0; to < hosts.size(); ++to)
            if (to != h) most = std::max(most, rates[h][to].bandwidth);
        adapters.push_back(static_cast<int>(all.domains.size()));
        all.domains.push_back({"network of " + hosts[h].host, most});
    }
    for (size_t a = 0; a < order.size(); ++a)
        for (size_t b = 0; b < order.size(); ++b) {
            CLEAVE_CHECK(host_of[a] < hosts.size()) << order[a] << " is described by no host";
            if (host_of[a] == host_of[b]) continue;
            const NetworkRate& rate = rates[host_of[a]][host_of[b]];
            Link link{DeviceId(a), DeviceId(b), LinkKind::kNetwork, rate.bandwidth,
                      rate.latency_ns};
            link.domain = adapters[host_of[a]];
            all.links.push_back(link);
        }
    std::sort(all.links.begin(), all.links.end(), [](const Link& a, const Link& b) {
        return std::pair(a.from, a.to) < std::pair(b.from, b.to);
    });
    return all;
}

}  // namespace cleave::planner
