// SPDX-License-Identifier: Apache-2.0
#include "planner/search/exhaustive.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "planner/plan/foreign_op.h"
#include "planner/search/candidates.h"
#include "planner/search/cost_tables.h"
#include "planner/search/device_order.h"
#include "planner/search/simplicity.h"

namespace cleave::planner {
namespace {

constexpr double kMostSteps = 40'000;  // of all placements together

class Enumeration {
public:
    Enumeration(const Analysis& a, CostTables& tables, bool may_split,
                const std::function<void(const Placement&)>& visit)
        : a_(a), tables_(tables), may_split_(may_split), visit_(visit) {}

    double count_cuts() {
        // [unit][device]: ways to place the units from there on.
        std::vector<std::vector<double>> ways(units() + 1, std::vector<double>(devices() + 1, 0));
        ways[units()].assign(devices() + 1, 1);
        for (int u = units() - 1; u >= 0; --u)
            for (int d = devices() - 1; d >= 0; --d) {
                ways[u][d] = ways[u][d + 1];
                for (int count = 1; count <= widest(d); ++count)
                    for (int end = u + 1; end <= units(); ++end)
                        ways[u][d] += num_shares(d, count) * ways[end][d + count];
            }
        return ways[0][0];
    }

    void cuts() {
        placement_.stages.clear();
        extend(0, 0);
    }

private:
    int units() const { return static_cast<int>(a_.units.size()); }
    int devices() const { return tables_.num_devices(); }
    int widest(int device) const { return may_split_ ? devices() - device : 1; }
    double num_shares(int first, int count) const {
        return (count > 1 ? 2 : 1) * (tables_.unequal(first, count) ? 2 : 1);
    }

    StageChoice stage(int device, int count, int from, int to, ShareMode mode) {
        StageChoice s;
        s.devices = tables_.devices_of(device, count);
        s.shares = tables_.range(device, count, mode).shares;
        s.begin = a_.units[from].begin;
        s.end = a_.units[to - 1].end;
        return s;
    }

    void extend(int unit, int device) {
        if (unit == units()) return visit_(placement_);
        if (device == devices()) return;
        extend(unit, device + 1);
        for (int count = 1; count <= widest(device); ++count)
            for (int end = unit + 1; end <= units(); ++end)
                for (ShareMode mode : {ShareMode::kBySpeed, ShareMode::kByMemory}) {
                    if (mode == ShareMode::kByMemory && !tables_.unequal(device, count)) continue;
                    placement_.stages.push_back(stage(device, count, unit, end, mode));
                    extend(end, device + count);
                    bool& groups = placement_.stages.back().shares.whole_groups;
                    groups = !groups;
                    if (count > 1) extend(end, device + count);
                    placement_.stages.pop_back();
                }
    }

    const Analysis& a_;
    CostTables& tables_;
    bool may_split_;
    const std::function<void(const Placement&)>& visit_;
    Placement placement_;
};

// Calls `visit` with every placement; with none when there are more than `most`.
void each_placement(const Analysis& analysis, CostTables& tables, bool may_split, double most,
                    const std::function<void(const Placement&)>& visit) {
    Enumeration all(analysis, tables, may_split, visit);
    // Two to the devices: the sum over partitions alone would take long on large machines.
    if (tables.num_devices() > 8 || all.count_cuts() > most) return;
    all.cuts();
}

}  // namespace

bool exhaust(const Analysis& analysis, const Shape& shape, const Limits& limits,
             PlanBuilder& builder, Placement& placement, PlanBody& plan) {
    if (shape.tensor_parallel > 0 || shape.pipeline_stages > 0 || pins_return(shape.pins))
        return false;
    const PlanRequest& request = builder.request();
    const Objective objective = request.options.objective;
    const bool may_split =
        std::none_of(analysis.graph.ops.begin(), analysis.graph.ops.end(), stays_on_one_device);
    CostTables tables(analysis, request.machine, request.workload, user_order(request.machine), 0);
    bool gained = false;
    each_placement(
        analysis, tables, may_split, kMostSteps / static_cast<double>(num_steps(plan)),
        [&](const Placement& p) {
            if (!meets_pins(analysis, shape.pins, p) ||
                (request.options.whole_layers && cuts_a_layer(analysis, p)))
                return;
            PlanBody candidate = builder.build(p);
            if (!fits_memory(candidate) || !is_better(candidate, plan, objective, limits)) return;
            plan = std::move(candidate);
            placement = p;
            gained = true;
        });
    return gained;
}

}  // namespace cleave::planner
