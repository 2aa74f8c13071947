// SPDX-License-Identifier: Apache-2.0
#include "planner/ask/pareto.h"

#include <algorithm>
#include <cmath>

#include "planner/ask/figures.h"
#include "planner/plan/used_devices.h"
#include "planner/search/replicas.h"

namespace cleave::planner {
namespace {

constexpr size_t kLargestReplica = 64;  // devices; larger ones only where none of these fits
constexpr int64_t kMostUsers = 4096;    // of a replica

// Of the devices that the replica's plan uses: a part may have more, of another kind.
ParetoPoint point_of(const Plan& plan, int64_t replicas) {
    const Figures f = figures_of(plan);
    const size_t devices = used_devices(plan).size();
    const auto in_use = static_cast<double>(devices);
    return {f.shape,
            static_cast<int64_t>(devices),
            replicas,
            replicas * f.users,
            f.tokens_per_second / in_use,
            f.tokens_per_second / static_cast<double>(f.users),
            f.ttft_ns,
            f.tpot_ns,
            f.cost_per_million,
            f.grounds};
}

}  // namespace

std::vector<ParetoPoint> best_points(std::vector<ParetoPoint> points) {
    std::ranges::stable_sort(points, [](const ParetoPoint& a, const ParetoPoint& b) {
        return std::pair(a.per_user, a.per_device) > std::pair(b.per_user, b.per_device);
    });
    std::vector<ParetoPoint> best;
    for (ParetoPoint& p : points)
        if (best.empty() || p.per_device > best.back().per_device) best.push_back(std::move(p));
    while (best.size() > kMostPoints) {  // the one that is nearest to both of its neighbours goes
        size_t nearest = 1;
        const auto apart = [&](size_t i) { return best[i - 1].per_user / best[i + 1].per_user; };
        for (size_t i = 2; i + 1 < best.size(); ++i)
            if (apart(i) < apart(nearest)) nearest = i;
        best.erase(best.begin() + static_cast<std::ptrdiff_t>(nearest));
    }
    return best;
}

Pareto pareto(const Case& base, const std::function<void(size_t, size_t)>& progress) {
    Pareto found{base.graph.name, {}, {}};
    PlanOptions many = base.options;
    many.objective = Objective::kThroughput;
    const std::vector<Division> all = divisions(base.machine, many, INT64_MAX);
    // The arithmetic of products is that of the whole machine, not of a part that is all hosts.
    Workload workload = base.workload;
    if (!workload.compute && std::ranges::any_of(base.machine.devices, [](const DeviceInfo& d) {
            return d.limits.has_warps();
        }))
        workload.compute = ComputeMode::kExact;
    std::vector<ParetoPoint> points;
    for (size_t i = 0; i < all.size(); ++i) {
        const std::vector<Machine>& parts = all[i].parts;
        if (!points.empty() && parts.front().devices.size() > kLargestReplica) break;
        Case asked{base.graph, parts.front(), workload, many};
        asked.options.replicas = 1;
        const auto serves = [&](int64_t users, bool most) {
            asked.workload.batch = users;
            asked.options.most_users = most;
            const Outcome outcome = outcome_of(asked);
            if (outcome.plan)
                points.push_back(point_of(*outcome.plan, std::ssize(parts)));
            else
                found.refusal = outcome.refusal;
            return outcome.plan.has_value();
        };
        int64_t users = 1;
        while (users <= kMostUsers && serves(users, false)) users *= 2;
        if (users > 1 && users <= kMostUsers) serves(1, true);  // between this and half of it
        if (progress) progress(i + 1, all.size());
    }
    found.points = best_points(std::move(points));
    if (!found.points.empty()) found.refusal.clear();
    return found;
}

}  // namespace cleave::planner
