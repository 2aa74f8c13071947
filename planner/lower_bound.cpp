// SPDX-License-Identifier: Apache-2.0
#include "planner/lower_bound.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/cost.h"
#include "planner/device_order.h"
#include "planner/simulate.h"

namespace cleave::planner {
namespace {

class Bound {
public:
    Bound(const Analysis& a, const Machine& machine, const Workload& workload)
        : a_(a), machine_(machine), workload_(workload) {
        // A group of n devices has a link no faster than the fastest level whose components reach n.
        best_link_.assign(machine.devices.size() + 1, {INT64_MAX, 1});
        for (const LinkLevel& level : link_levels(machine))
            for (int n = 2; n <= level.largest_group; ++n)
                if (best_link_[n].second == 1)
                    best_link_[n] = {level.smallest_latency_ns, level.bandwidth};
    }

    // ns of one pass of a phase.
    double pass(bool is_prefill, bool spread_over_all) {
        BatchPoint point = is_prefill ? prefill_point(workload_) : decode_point(workload_);
        double total = 0;
        std::map<std::tuple<int64_t, int64_t, int64_t, DType>, double> known;
        for (const FusedGroup& group : a_.groups) {
            LaunchAmounts whole =
                launch_amounts(a_, group, {0, group.split.work.units}, workload_, false);
            Amount moved = whole.weight_bytes + whole.activation_bytes;
            if (is_prefill) moved.per_key /= kPrefillKeyReuse;
            int64_t payload =
                is_partial(group)
                    ? at(value_bytes(a_.graph.value(group.partial), 0, workload_), point)
                    : 0;
            // What is split must be read; a group that cannot be split runs whole on one device at least.
            bool may_split = !group.split.work.whole();
            DType dtype = compute_dtype(a_, group, workload_);
            auto [cost, fresh] = known.try_emplace(
                {at(whole.flops, point), at(moved, point), may_split ? payload : -1, dtype}, 0.0);
            if (fresh)
                cost->second = group_time(at(whole.flops, point), at(moved, point), payload,
                                          may_split || spread_over_all, dtype, spread_over_all);
            total += cost->second;
        }
        return total;
    }

private:
    double group_time(int64_t flops, int64_t bytes, int64_t payload, bool may_split, DType dtype,
                      bool spread) {
        // The inverse of a device's time for the whole group, overhead apart, fastest first.
        std::vector<double> rates;
        double overhead = INFINITY;
        for (const Device& d : machine_.devices) {
            double t =
                static_cast<double>(launch_ns(d, dtype, flops, bytes) - d.launch_overhead_ns);
            rates.push_back(1.0 / std::max(0.5, t));
            overhead = std::min(overhead, static_cast<double>(d.launch_overhead_ns));
        }
        cap_by_domain(rates);
        std::sort(rates.begin(), rates.end(), std::greater<>());
        if (spread) {
            double sum = 0;
            for (double r : rates) sum += r;
            return 1.0 / sum;
        }
        double best = INFINITY, sum = 0;
        for (size_t t = 1; t <= (may_split ? rates.size() : 1); ++t) {
            sum += rates[t - 1];
            double reduce = 0;
            if (t > 1 && payload > 0 && best_link_[t].second > 1)  // one exchange at least
                reduce =
                    static_cast<double>(best_link_[t].first) +
                    static_cast<double>(payload) / static_cast<double>(best_link_[t].second) * 1e9;
            best = std::min(best, overhead + 1.0 / sum + reduce);
        }
        return best;
    }

    // Devices that share a domain cannot take more of it than there is.
    void cap_by_domain(std::vector<double>& rates) const {
        for (size_t domain = 0; domain < machine_.domains.size(); ++domain) {
            double wanted = 0;
            for (const Device& d : machine_.devices)
                if (d.memory_domain == static_cast<int>(domain))
                    wanted += static_cast<double>(d.memory_bandwidth);
            double factor = std::min(1.0, static_cast<double>(machine_.domains[domain].bandwidth) /
                                              std::max(1.0, wanted));
            if (factor >= 1.0) continue;
            // One device alone keeps its rate; together they share. Spreading the domain's rate over as few members
            // as it feeds at full speed keeps both bounds valid.
            double left = static_cast<double>(machine_.domains[domain].bandwidth);
            for (size_t i = 0; i < rates.size(); ++i) {
                const Device& d = machine_.devices[i];
                if (d.memory_domain != static_cast<int>(domain)) continue;
                double share = std::clamp(left / static_cast<double>(d.memory_bandwidth), 0.0, 1.0);
                left -= share * static_cast<double>(d.memory_bandwidth);
                rates[i] *= share;
            }
        }
    }

    const Analysis& a_;
    const Machine& machine_;
    const Workload& workload_;
    std::vector<std::pair<int64_t, int64_t>> best_link_;  // by group size: latency, bandwidth
};

}  // namespace

int64_t lower_bound_ns(const Analysis& analysis, const Machine& machine, const Workload& workload,
                       Objective objective) {
    Bound bound(analysis, machine, workload);
    bool spread = objective == Objective::kThroughput;
    double decode = bound.pass(false, spread), prefill = bound.pass(true, spread);
    auto generated = static_cast<double>(generated_tokens(workload));
    auto passes = static_cast<double>(num_prefill_passes(workload));
    // Passes of a prompt may overlap in a pipeline; they cannot take less than one pass, nor than all the work
    // spread over all devices.
    double all = spread ? prefill * passes : std::max(prefill, bound.pass(true, true) * passes);
    return static_cast<int64_t>(std::floor(decode + all / generated));
}

}  // namespace cleave::planner
