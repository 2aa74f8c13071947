// SPDX-License-Identifier: Apache-2.0
#include "planner/search/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "planner/cost/launch_times.h"
#include "planner/cost/simulate.h"
#include "planner/machine/vendor.h"
#include "planner/search/device_order.h"

namespace cleave::planner {
namespace {

// Rounding of times to whole ns in a piece's prediction and in a device's busy time, per group.
constexpr double kRounding = 3;

class Bound {
public:
    Bound(const Analysis& a, const Machine& machine, const Workload& workload)
        : a_(a), machine_(machine), workload_(workload), launches_(a, machine, workload) {
        // A group of n devices has a link no faster than the fastest level whose components reach
        // n.
        best_link_.assign(machine.devices.size() + 1, {INT64_MAX, 1});
        for (const LinkLevel& level : link_levels(machine))
            for (int n = 2; n <= level.largest_group; ++n)
                if (best_link_[n].second == 1)
                    best_link_[n] = {level.smallest_latency_ns, level.bandwidth};
        for (const Link& link : machine.links)
            if (is_own_link(link.kind)) slowest_fabric_ = std::min(slowest_fabric_, link.bandwidth);
        std::map<std::string, int64_t> nodes;
        for (const DeviceInfo& d : machine.devices)
            fullest_node_ = std::max(fullest_node_, ++nodes[d.host]);
        // Where a pair has no link, a group may be joined by no level at all: its exchange counts
        // nothing.
        size_t count = machine.devices.size();
        if (machine.links.size() < count * (count - 1))
            best_link_.assign(count + 1, {INT64_MAX, 1});
        std::set<std::pair<int64_t, int64_t>> known;
        for (const Link& link : machine.links) {
            // Exchanges that were measured apart, and meshes, where a device sends to all others at
            // once.
            int64_t rate = std::max(link.bandwidth, link.exchange_bandwidth);
            const VendorFacts* own = vendor_of(link.kind);
            if (own && own->links_form_a_mesh) rate *= static_cast<int64_t>(count);
            if (rate <= link.bandwidth) rate = 0;
            if (!known.emplace(rate, link.exchange_latency_ns).second) continue;
            for (auto& [latency, bandwidth] : best_link_) {
                if (bandwidth == 1) continue;
                bandwidth = std::max(bandwidth, rate);
                if (link.exchange_latency_ns > 0)
                    latency = std::min(latency, link.exchange_latency_ns);
            }
        }
    }

    // From below: the ns of one pass of a phase, in which groups follow each other, and those for
    // which its busiest device is busy.
    struct Times {
        double pass = 0, busiest = 0;
    };
    Times times(bool is_prefill) {
        PassPoint point = is_prefill ? prefill_point(workload_) : decode_point(workload_);
        Times total;
        std::vector<std::vector<double>> alone;  // of each group, by device
        std::map<std::tuple<int64_t, int64_t, int64_t, DType, KernelKind>, size_t> known;
        std::vector<int64_t> repeats, weights;  // of each: bytes that a pass reads once
        for (const FusedGroup& group : a_.groups) {
            LaunchAmounts whole =
                launch_amounts(a_, group, {0, group.split.work.units}, workload_, false);
            int64_t flops = whole.flops.at(point);
            int64_t moved = (whole.weight_bytes + whole.activation_bytes).at(point);
            // A group that cannot be split runs whole on one device at least.
            bool may_split = !group.split.work.whole();
            int64_t payload =
                is_partial(group)
                    ? value_bytes(a_.graph.value(group.partial), 0, workload_).at(point)
                    : 0;
            DType dtype = compute_dtype(a_, group, workload_);
            auto [seen, fresh] = known.try_emplace(
                {flops, moved, may_split ? payload : -1, dtype, group.kernel}, alone.size());
            if (!fresh) {
                ++repeats[seen->second];
                continue;
            }
            repeats.push_back(1);
            weights.push_back(whole.weight_bytes.constant);
            std::vector<LaunchCosts::Floor> floors =
                floors_of(static_cast<size_t>(&group - a_.groups.data()), is_prefill);
            alone.emplace_back();
            for (const LaunchCosts::Floor& floor : floors) alone.back().push_back(floor.alone);
            group_ns_.push_back(group_time(floors, payload, may_split));
        }
        for (size_t g = 0; g < alone.size(); ++g)
            total.pass += group_ns_[g] * static_cast<double>(repeats[g]);
        total.busiest = busiest(alone, repeats);
        // A pass is no shorter than the work of any device in it.
        const double held = time_of_held(alone, repeats, weights);
        total.pass = std::max(total.pass, held);
        total.busiest = std::max(total.busiest, held);
        group_ns_.clear();
        return total;
    }

private:
    // By device; equal devices have equal floors.
    std::vector<LaunchCosts::Floor> floors_of(size_t group, bool is_prefill) const {
        std::vector<LaunchCosts::Floor> floors;
        for (size_t d = 0; d < machine_.devices.size(); ++d) {
            size_t same = d;
            for (size_t e = 0; e < d && same == d; ++e)
                if (alike(machine_.devices[d], machine_.devices[e])) same = e;
            floors.push_back(same < d ? floors[same]
                                      : launches_.floor(DeviceId(d), group, is_prefill));
        }
        return floors;
    }

    static bool alike(const DeviceInfo& a, const DeviceInfo& b) {
        auto rates = [](const DeviceInfo& d) {
            return std::tuple(d.kind, d.arch, d.model, d.memory_bandwidth, d.flops_f32, d.flops_f16,
                              d.flops_f8, d.flops_int8, d.launch_overhead_ns, d.limits.warp_width,
                              d.limits.num_compute_units, d.measured.bandwidth,
                              d.measured.flops_f32, d.measured.launch_ns);
        };
        return rates(a) == rates(b);
    }

    // The best of t devices, for every t: overhead once, the work in proportion to the rates of the
    // fastest, an exchange of the sum.
    double group_time(const std::vector<LaunchCosts::Floor>& floors, int64_t payload,
                      bool may_split) const {
        std::vector<double> rates;
        double overhead = INFINITY;
        for (const LaunchCosts::Floor& floor : floors) {
            rates.push_back(1.0 / std::max(0.5, floor.work));
            overhead = std::min(overhead, floor.overhead);
        }
        double most = shared_rate(rates);
        std::sort(rates.begin(), rates.end(), std::greater<>());
        double best = INFINITY, sum = 0;
        for (size_t t = 1; t <= (may_split ? rates.size() : 1); ++t) {
            sum += rates[t - 1];
            double reduce = 0;
            if (t > 1 && payload > 0 && best_link_[t].second > 1)
                reduce = exchange_time(t, payload);
            best = std::min(best, overhead + 1.0 / std::min(sum, most) + reduce);
        }
        return std::max(0.0, best - kRounding);
    }

    // An all-reduce of t members over links that are nowhere better: one exchange at least; among
    // devices that no fabric joins, the cheaper of all to all at once and of two phases (a ring has
    // no fewer steps than those, nor less to move).
    double exchange_time(size_t t, int64_t payload) const {
        auto latency = static_cast<double>(best_link_[t].first);
        double once =
            static_cast<double>(payload) / static_cast<double>(best_link_[t].second) * 1e9;
        if (may_be_fabric(t)) return latency + once;
        // Over nodes each adapter takes a part of the payload.
        if (!machine_.fabric.empty()) return latency + once / static_cast<double>(fullest_node_);
        auto others = static_cast<double>(t - 1);
        return std::min(latency + once * others,
                        2 * latency + 2 * once * others / static_cast<double>(t));
    }

    // Whether NVLink or Infinity Fabric may join all of t devices: their libraries have algorithms
    // of their own.
    bool may_be_fabric(size_t t) const { return best_link_[t].second >= slowest_fabric_; }

    // The rate of all devices together, where members of a domain share its bandwidth: each domain
    // feeds first those that make most of it.
    double shared_rate(const std::vector<double>& rates) const {
        std::vector<size_t> order(rates.size());
        std::iota(order.begin(), order.end(), size_t{0});
        auto wants = [&](size_t i) {
            return static_cast<double>(std::max<int64_t>(1, machine_.devices[i].memory_bandwidth));
        };
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            return rates[a] / wants(a) > rates[b] / wants(b);
        });
        std::vector<double> left;
        for (const BandwidthDomain& d : machine_.domains)
            left.push_back(static_cast<double>(std::max<int64_t>(1, d.bandwidth)));
        double sum = 0, fastest = 0;
        for (size_t i : order) {
            int domain = machine_.devices[i].memory_domain;
            double share = 1;
            if (domain >= 0) {
                share = std::clamp(left[domain] / wants(i), 0.0, 1.0);
                left[domain] -= share * wants(i);
            }
            sum += share * rates[i];
            fastest = std::max(fastest, rates[i]);
        }
        return std::max(sum, fastest);
    }

    // Whatever piece x of group g device i computes, it is busy for x * alone[g][i] at least; so
    // for any weights of the devices that sum to 1, the busiest is busy for the sum over groups of
    // the least weighted time (the dual of the linear programme that spreads the work). A
    // pipeline's stages share a domain at other times than within one pass, so domains do not
    // enter.
    double busiest(const std::vector<std::vector<double>>& alone,
                   const std::vector<int64_t>& repeats) const {
        size_t count = machine_.devices.size();
        std::vector<double> weight(count);
        double sum = 0;
        for (size_t i = 0; i < count; ++i) {
            double all = 0;
            for (size_t g = 0; g < alone.size(); ++g)
                all += alone[g][i] * static_cast<double>(repeats[g]);
            weight[i] = 1.0 / std::max(1.0, all);
            sum += weight[i];
        }
        double total = 0;
        for (size_t g = 0; g < alone.size(); ++g) {
            double least = INFINITY;
            for (size_t i = 0; i < count; ++i)
                least = std::min(least, weight[i] / sum * alone[g][i]);
            total += std::max(0.0, least - kRounding) * static_cast<double>(repeats[g]);
        }
        return total;
    }

    // Each weight is read by a device that holds it, so memory sends some to slow devices: the
    // least T in which all are read, of device i at most as many bytes as it has, and at most T
    // times the rate at which it reads those of the group that it reads fastest.
    double time_of_held(const std::vector<std::vector<double>>& alone,
                        const std::vector<int64_t>& repeats,
                        const std::vector<int64_t>& weights) const {
        double bytes = 0, groups = 0;
        std::vector<double> rate(machine_.devices.size());
        for (size_t g = 0; g < alone.size(); ++g) {
            bytes += static_cast<double>(weights[g] * repeats[g]);
            groups += static_cast<double>(repeats[g]);
            for (size_t i = 0; i < rate.size(); ++i)
                rate[i] =
                    std::max(rate[i], static_cast<double>(weights[g]) / std::max(1.0, alone[g][i]));
        }
        const auto read_in = [&](double ns) {
            double sum = 0;
            for (size_t i = 0; i < rate.size(); ++i) {
                const DeviceInfo& d = machine_.devices[i];
                sum += std::min(ns * rate[i], static_cast<double>(std::max<int64_t>(
                                                  0, d.memory_bytes - d.reserved_bytes)));
            }
            return sum;
        };
        double low = 0, high = 1;
        while (high < 1e15 && read_in(high) < bytes) high *= 2;
        if (read_in(high) < bytes) return 0;  // nothing holds them: there is no plan
        for (int i = 0; i < 60; ++i) {
            const double middle = (low + high) / 2;
            (read_in(middle) < bytes ? low : high) = middle;
        }
        return std::max(0.0, low - kRounding * groups);
    }

    const Analysis& a_;
    const Machine& machine_;
    const Workload& workload_;
    LaunchCosts launches_;
    std::vector<std::pair<int64_t, int64_t>> best_link_;  // by group size: latency, bandwidth
    int64_t fullest_node_ = 1;                            // devices of one host, at most
    int64_t slowest_fabric_ = INT64_MAX;                  // bandwidth of the slowest such link
    std::vector<double> group_ns_;
};

}  // namespace

int64_t lower_bound_ns(const Analysis& analysis, const Machine& machine, const Workload& workload,
                       Objective objective) {
    Bound bound(analysis, machine, workload);
    Bound::Times decode = bound.times(false), prefill = bound.times(true);
    auto generated = static_cast<double>(generated_tokens(workload));
    auto passes = static_cast<double>(num_prefill_passes(workload));
    // As plans are scored (planner/cost/simulate.cpp). Passes of a prompt follow each other at the
    // busiest device's pace.
    const double pass = decode.pass + (prefill.pass + (passes - 1) * prefill.busiest) / generated;
    const double busiest = decode.busiest + prefill.busiest * passes / generated;
    const int64_t ns =
        row_of(objective).score({static_cast<int64_t>(pass), static_cast<int64_t>(busiest)});
    return std::max<int64_t>(1, ns - 1);
}

}  // namespace cleave::planner
