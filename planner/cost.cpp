// SPDX-License-Identifier: Apache-2.0
#include "planner/cost.h"

#include <algorithm>

namespace cleave::planner {
namespace {

// The share of a data sheet's peak that good kernels reach on large operands.
struct Efficiency {
    double bandwidth, flops;
};

Efficiency efficiency(const Device& device) {
    bool host = device.limits.warp_width <= 1;
    return host ? Efficiency{0.85, 0.5} : Efficiency{0.8, 0.6};
}

constexpr int64_t kStagedBandwidth = 6'000'000'000;  // through pageable memory of the hosts
constexpr int64_t kStagedLatency = 30'000;

int64_t nanoseconds(double bytes, double per_second) {
    return static_cast<int64_t>(bytes * 1e9 / per_second + 0.5);
}

}  // namespace

LinkTable::LinkTable(const Machine& machine)
    : machine_(&machine), count_(machine.devices.size()), links_(count_ * count_, nullptr) {
    for (const Link& link : machine.links)
        links_[link.from.index() * count_ + link.to.index()] = &link;
}

CollectiveImplementation all_reduce_form(bool through_host, bool is_prefill, size_t members) {
    if (!is_prefill) return CollectiveImplementation::kOneShot;
    if (!through_host) return CollectiveImplementation::kRing;
    return members > 2 ? CollectiveImplementation::kTwoPhase : CollectiveImplementation::kOneShot;
}

int64_t LinkTable::transfer_ns(DeviceId from, DeviceId to, int64_t bytes) const {
    if (from == to) return 0;
    const Link* link = at(from, to);
    double bandwidth = static_cast<double>(link ? link->bandwidth : kStagedBandwidth);
    return (link ? link->latency_ns : kStagedLatency) +
           nanoseconds(static_cast<double>(bytes), std::max(1.0, bandwidth));
}

int64_t LinkTable::all_reduce_ns(std::span<const DeviceId> group, int64_t bytes,
                                 CollectiveImplementation implementation) const {
    auto n = static_cast<int64_t>(group.size());
    if (n <= 1) return 0;
    int64_t latency = 0, bandwidth = INT64_MAX;
    bool ring = implementation == CollectiveImplementation::kRing;
    for (size_t i = 0; i < group.size(); ++i) {
        // A ring crosses neighbouring links only; the other forms use every pair.
        size_t partners = ring ? 1 : group.size() - 1;
        for (size_t k = 1; k <= partners; ++k) {
            const Link* link = at(group[i], group[(i + k) % group.size()]);
            latency = std::max(latency, link ? link->latency_ns : kStagedLatency);
            bandwidth = std::min(bandwidth, link ? link->bandwidth : kStagedBandwidth);
        }
    }
    auto b = static_cast<double>(std::max<int64_t>(1, bandwidth));
    auto p = static_cast<double>(bytes), m = static_cast<double>(n);
    switch (implementation) {
        case CollectiveImplementation::kOneShot: return latency + nanoseconds(p * (m - 1), b);
        case CollectiveImplementation::kTwoPhase:
            return 2 * latency + nanoseconds(2 * p * (m - 1) / m, b);
        case CollectiveImplementation::kRing:
        case CollectiveImplementation::kVendor:
            return 2 * (n - 1) * latency / 2 + nanoseconds(2 * p * (m - 1) / m, b);
    }
    return 0;
}

int64_t LinkTable::gather_ns(std::span<const DeviceId> from, DeviceId to, int64_t bytes) const {
    int64_t time = 0;
    if (from.empty()) return 0;
    int64_t piece = bytes / static_cast<int64_t>(from.size());
    for (DeviceId d : from)
        if (d != to) {
            const Link* link = at(d, to);
            auto bandwidth = static_cast<double>(
                std::max<int64_t>(1, link ? link->bandwidth : kStagedBandwidth));
            time = std::max(time, link ? link->latency_ns : kStagedLatency) +
                   nanoseconds(static_cast<double>(piece), bandwidth);
        }
    return time;
}

int64_t launch_ns(const Device& device, DType dtype, int64_t flops, int64_t bytes) {
    Efficiency e = efficiency(device);
    int64_t compute =
        nanoseconds(static_cast<double>(flops),
                    std::max(1.0, e.flops * static_cast<double>(device.flops(dtype))));
    int64_t memory =
        nanoseconds(static_cast<double>(bytes),
                    std::max(1.0, e.bandwidth * static_cast<double>(device.memory_bandwidth)));
    return device.launch_overhead_ns + std::max(compute, memory);
}

DType compute_dtype(const Analysis& analysis, const FusedGroup& group, const Workload& workload) {
    DType dtype = DType::kF32;
    int64_t largest = 0;
    for (OpId id : group.ops)
        for (WeightId w : analysis.graph.op(id).weights) {
            const importer::Weight& weight = analysis.graph.weight(w);
            if (weight.shape.size() < 2 || weight.num_elements() <= largest) continue;
            largest = weight.num_elements();
            dtype = device_dtype(weight, workload);
        }
    return dtype;
}

int64_t bytes_moved(const LaunchAmounts& amounts, const BatchPoint& point, bool is_prefill) {
    Amount moved = amounts.weight_bytes + amounts.activation_bytes;
    int64_t of_keys = moved.per_key * point.num_keys;
    moved.per_key = 0;
    return at(moved, point) + (is_prefill ? of_keys / kPrefillKeyReuse : of_keys);
}

int64_t launch_ns(const Device& device, DType dtype, const LaunchAmounts& amounts,
                  const BatchPoint& point, bool is_prefill) {
    return launch_ns(device, dtype, at(amounts.flops, point),
                     bytes_moved(amounts, point, is_prefill));
}

}  // namespace cleave::planner
