// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/plan/plan_queries.h"
#include "runtime/base/rounding.h"

namespace cleave::planner {

namespace {

constexpr double kWorth = 1.05;  // more groups cost hand-overs, too

// Whether a pass goes from one host to another when the plan runs.
bool runs_on_several_hosts(const Plan& plan) {
    std::set<std::string> hosts;
    for (const Stage& stage : plan.stages)
        for (const DeviceId id : stage.devices)
            if (const DeviceInfo& device = plan.machine.device(id); device.kind != DeviceKind::kSim)
                hosts.insert(device.host);
    return hosts.size() > 1;
}

}  // namespace

PassTime pass_time_of(const Plan& plan, const PhaseTimes& times,
                      const std::vector<int64_t>& threads, int64_t cores) {
    PassTime pass{times.whole_ns, 0};
    std::map<std::string, double> of_cores;  // by host
    for (size_t d = 0; d < times.busy_ns.size(); ++d) {
        const DeviceInfo& device = plan.machine.devices[d];
        pass.busiest_ns = std::max(pass.busiest_ns, times.busy_ns[d]);
        if (is_on_cores(device.kind))
            of_cores[device.host] += static_cast<double>(times.busy_ns[d]) *
                                     static_cast<double>(threads[d]) / static_cast<double>(cores);
    }
    for (const auto& [host, ns] : of_cores)
        pass.busiest_ns = std::max<int64_t>(pass.busiest_ns, std::llround(ns));
    return pass;
}

int64_t most_groups(const Plan& plan) {
    const auto stages = static_cast<int64_t>(plan.stages.size());
    if (stages == 1 || has_virtual_stages(plan)) return 1;
    return runs_on_several_hosts(plan) ? kMostGroups : std::min(stages, kMostGroups);
}

int64_t round_ns(int64_t live, int64_t groups, const std::function<PassTime(int64_t)>& pass_time) {
    const PassTime pass = pass_time(ceil_div(live, groups));
    return std::max(pass.whole_ns, groups * pass.busiest_ns);
}

int64_t best_groups(int64_t live, int64_t most,
                    const std::function<PassTime(int64_t sequences)>& pass_time) {
    std::vector<int64_t> rounds;
    for (int64_t g = 1; g <= std::clamp<int64_t>(live, 1, most); ++g)
        rounds.push_back(round_ns(std::max<int64_t>(live, 1), g, pass_time));
    const auto least = static_cast<double>(*std::min_element(rounds.begin(), rounds.end()));
    const auto enough = std::find_if(rounds.begin(), rounds.end(), [&](int64_t ns) {
        return static_cast<double>(ns) <= kWorth * least;
    });
    return 1 + (enough - rounds.begin());
}

int64_t groups_in_flight(const Plan& plan, int64_t live, int64_t threads, int64_t cores) {
    const int64_t most = most_groups(plan);
    if (most <= 1) return 1;
    const Analysis analysis = analyse(plan.graph, plan.workload);
    const std::vector<int64_t> shares = core_shares(plan, threads);
    return best_groups(live, most, [&](int64_t sequences) {
        return pass_time_of(plan, decode_times(analysis, plan, sequences), shares,
                            std::max<int64_t>(1, cores));
    });
}

}  // namespace cleave::planner
