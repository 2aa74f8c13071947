// SPDX-License-Identifier: Apache-2.0
#include "planner/search/device_order.h"

#include <algorithm>

#include "planner/metis/metis.h"

namespace cleave::planner {
namespace {

// Bandwidth of the slower direction between two devices, 0 without a link.
std::vector<std::vector<int64_t>> bandwidth_matrix(const Machine& machine) {
    size_t n = machine.devices.size();
    std::vector<std::vector<int64_t>> one_way(n, std::vector<int64_t>(n, 0)), both = one_way;
    for (const Link& l : machine.links) one_way[l.from.index()][l.to.index()] = l.bandwidth;
    for (size_t a = 0; a < n; ++a)
        for (size_t b = 0; b < n; ++b) both[a][b] = std::min(one_way[a][b], one_way[b][a]);
    return both;
}

int64_t speed(const DeviceInfo& d) { return std::max<int64_t>(1, d.memory_bandwidth >> 20); }

// Sizes of the connected components over links of at least `threshold`.
std::vector<int> component_sizes(const std::vector<std::vector<int64_t>>& bandwidth,
                                 int64_t threshold) {
    size_t n = bandwidth.size();
    std::vector<bool> seen(n, false);
    std::vector<int> sizes;
    for (size_t start = 0; start < n; ++start) {
        if (seen[start]) continue;
        std::vector<size_t> todo{start};
        seen[start] = true;
        sizes.push_back(0);
        while (!todo.empty()) {
            size_t at = todo.back();
            todo.pop_back();
            ++sizes.back();
            for (size_t next = 0; next < n; ++next)
                if (!seen[next] && bandwidth[at][next] >= threshold) {
                    seen[next] = true;
                    todo.push_back(next);
                }
        }
    }
    return sizes;
}

// Exchanges pairs of devices between groups while that keeps more bandwidth inside; METIS leaves a
// few such pairs on graphs of many small equal cliques.
void exchange_pairs(const std::vector<std::vector<int64_t>>& bandwidth, std::vector<int>& parts,
                    int count) {
    size_t n = parts.size();
    std::vector<std::vector<double>> inside(
        n, std::vector<double>(count, 0.0));  // bandwidth of a device to each group
    for (size_t a = 0; a < n; ++a)
        for (size_t b = 0; b < n; ++b)
            if (a != b) inside[a][parts[b]] += static_cast<double>(bandwidth[a][b]);
    for (size_t round = 0; round < n * n; ++round) {
        double best = 0;
        size_t best_a = 0, best_b = 0;
        for (size_t a = 0; a < n; ++a)
            for (size_t b = a + 1; b < n; ++b) {
                if (parts[a] == parts[b]) continue;
                double gain = inside[a][parts[b]] - inside[a][parts[a]] + inside[b][parts[a]] -
                              inside[b][parts[b]] - 2.0 * static_cast<double>(bandwidth[a][b]);
                if (gain > best + 0.5) best = gain, best_a = a, best_b = b;
            }
        if (best <= 0) return;
        for (size_t v = 0; v < n; ++v) {
            double change = (v == best_b ? 0.0 : static_cast<double>(bandwidth[v][best_b])) -
                            (v == best_a ? 0.0 : static_cast<double>(bandwidth[v][best_a]));
            inside[v][parts[best_a]] += change;
            inside[v][parts[best_b]] -= change;
        }
        std::swap(parts[best_a], parts[best_b]);
    }
}

}  // namespace

DeviceGroups group_devices(const Machine& machine, int count, int64_t seed) {
    std::vector<std::vector<int64_t>> bandwidth = bandwidth_matrix(machine);
    auto n = static_cast<int>(machine.devices.size());
    std::vector<PartitionEdge> edges;
    std::vector<int64_t> weights;
    for (int a = 0; a < n; ++a) {
        weights.push_back(speed(machine.devices[a]));
        for (int b = a + 1; b < n; ++b)
            if (bandwidth[a][b] > 0) edges.push_back({a, b, bandwidth[a][b] >> 20});
    }
    std::vector<double> targets(count, 1.0);
    std::vector<int> parts = partition_graph(n, edges, weights, targets, seed);
    exchange_pairs(bandwidth, parts, count);
    DeviceGroups result;
    std::vector<int> place(count, -1);
    for (int d = 0; d < n; ++d) {
        int& group = place[parts[d]];
        if (group < 0) {
            group = static_cast<int>(result.groups.size());
            result.groups.emplace_back();
        }
        result.groups[group].push_back(DeviceId(d));
    }
    result.inner_bandwidth = INT64_MAX;
    for (int a = 0; a < n; ++a)
        for (int b = a + 1; b < n; ++b) {
            if (parts[a] == parts[b])
                result.inner_bandwidth = std::min(result.inner_bandwidth, bandwidth[a][b]);
            else
                result.outer_bandwidth = std::max(result.outer_bandwidth, bandwidth[a][b]);
        }
    if (result.inner_bandwidth == INT64_MAX) result.inner_bandwidth = 0;
    return result;
}

std::vector<LinkLevel> link_levels(const Machine& machine) {
    std::vector<std::vector<int64_t>> bandwidth = bandwidth_matrix(machine);
    std::vector<int64_t> rates;
    for (size_t a = 0; a < bandwidth.size(); ++a)
        for (size_t b = a + 1; b < bandwidth.size(); ++b) rates.push_back(bandwidth[a][b]);
    std::sort(rates.begin(), rates.end(), std::greater<>());
    rates.erase(std::unique(rates.begin(), rates.end()), rates.end());
    std::vector<LinkLevel> levels;
    for (int64_t rate : rates) {
        std::vector<int> sizes = component_sizes(bandwidth, rate);
        LinkLevel level{rate, *std::max_element(sizes.begin(), sizes.end()),
                        static_cast<int>(sizes.size()), INT64_MAX};
        for (const Link& l : machine.links)
            if (l.bandwidth <= rate)
                level.smallest_latency_ns = std::min(level.smallest_latency_ns, l.latency_ns);
        levels.push_back(level);
    }
    return levels;
}

int natural_group_count(const Machine& machine) {
    std::vector<LinkLevel> levels = link_levels(machine);
    auto n = static_cast<int>(machine.devices.size());
    for (size_t i = 0; i + 1 < levels.size(); ++i)
        if (levels[i + 1].bandwidth * 2 <= levels[i].bandwidth && levels[i].num_groups > 1 &&
            levels[i].num_groups < n)
            return levels[i].num_groups;
    return 1;
}

std::vector<DeviceId> flatten(const DeviceGroups& groups) {
    std::vector<DeviceId> order;
    for (const auto& group : groups.groups) order.insert(order.end(), group.begin(), group.end());
    return order;
}

std::vector<DeviceId> user_order(const Machine& machine) {
    std::vector<DeviceId> order;
    for (size_t d = 0; d < machine.devices.size(); ++d) order.push_back(DeviceId(d));
    return order;
}

}  // namespace cleave::planner
