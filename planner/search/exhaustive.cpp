// SPDX-License-Identifier: Apache-2.0
#include "planner/search/exhaustive.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "planner/plan/foreign_op.h"
#include "planner/search/candidates.h"
#include "planner/search/cost_tables.h"
#include "planner/search/device_order.h"

namespace cleave::planner {
namespace {

constexpr double kMostSteps = 40'000;  // of all placements together

using DeviceRange = std::pair<int, int>;  // first, count, of the tables' order

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

    double count_assignments() {
        double sum = 0;
        std::vector<DeviceRange> ranges;
        each_partition(ranges, 0, [&] {
            sum += std::pow(static_cast<double>(ranges.size()), units());
            return sum < 1e9;
        });
        return sum;
    }

    void cuts() {
        placement_.stages.clear();
        extend(0, 0);
    }

    void assignments() {
        std::vector<DeviceRange> ranges;
        std::vector<int> range(units(), 0);
        each_partition(ranges, 0, [&] {
            assign(ranges, range, 0);
            return true;
        });
    }

private:
    int units() const { return static_cast<int>(a_.units.size()); }
    int devices() const { return tables_.num_devices(); }
    int widest(int device) const { return may_split_ ? devices() - device : 1; }
    double num_shares(int first, int count) const {
        return (count > 1 ? 2 : 1) * (tables_.unequal(first, count) ? 2 : 1);
    }

    StageChoice stage(DeviceRange range, int from, int to, ShareMode mode) {
        StageChoice s;
        s.devices = tables_.devices_of(range.first, range.second);
        s.shares = tables_.range(range.first, range.second, mode).shares;
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
                    placement_.stages.push_back(stage({device, count}, unit, end, mode));
                    extend(end, device + count);
                    bool& groups = placement_.stages.back().shares.whole_groups;
                    groups = !groups;
                    if (count > 1) extend(end, device + count);
                    placement_.stages.pop_back();
                }
    }

    // Disjoint ranges of the order, some devices left out; `visit` stops it by false.
    template <class Visit>
    bool each_partition(std::vector<DeviceRange>& ranges, int device, Visit&& visit) {
        if (device == devices()) return ranges.empty() || visit();
        if (!each_partition(ranges, device + 1, visit)) return false;
        for (int count = 1; count <= widest(device); ++count) {
            ranges.emplace_back(device, count);
            bool go_on = each_partition(ranges, device + count, visit);
            ranges.pop_back();
            if (!go_on) return false;
        }
        return true;
    }

    void assign(const std::vector<DeviceRange>& ranges, std::vector<int>& range, int unit) {
        if (unit < units()) {
            for (size_t r = 0; r < ranges.size(); ++r) {
                range[unit] = static_cast<int>(r);
                assign(ranges, range, unit + 1);
            }
            return;
        }
        placement_.stages.clear();
        for (int from = 0, to = 0; from < units(); from = to) {
            for (to = from + 1; to < units() && range[to] == range[from];) ++to;
            placement_.stages.push_back(stage(ranges[range[from]], from, to, ShareMode::kBySpeed));
        }
        visit_(placement_);
    }

    const Analysis& a_;
    CostTables& tables_;
    bool may_split_;
    const std::function<void(const Placement&)>& visit_;
    Placement placement_;
};

// Calls `visit` with every placement; with none when there are more than `most`.
void each_placement(const Analysis& analysis, CostTables& tables, bool any_order, bool may_split,
                    double most, const std::function<void(const Placement&)>& visit) {
    Enumeration all(analysis, tables, may_split, visit);
    // Two to the devices: the sum over partitions alone would take long on large machines.
    if (tables.num_devices() > 8 || all.count_cuts() > most) return;
    if (any_order && all.count_assignments() > most) return;
    all.cuts();
    if (any_order) all.assignments();
}

}  // namespace

bool exhaust(const Analysis& analysis, const Shape& shape, PlanBuilder& builder,
             Placement& placement, PlanBody& plan) {
    if (shape.tensor_parallel > 0 || shape.pipeline_stages > 0 || pins_return(shape.pins))
        return false;
    const PlanRequest& request = builder.request();
    const bool may_split =
        std::none_of(analysis.graph.ops.begin(), analysis.graph.ops.end(), stays_on_one_device);
    const bool any_order = row_of(request.options.objective).wants_interleaving;
    CostTables tables(analysis, request.machine, request.workload, user_order(request.machine), 0);
    bool gained = false;
    each_placement(analysis, tables, any_order, may_split,
                   kMostSteps / static_cast<double>(num_steps(plan)), [&](const Placement& p) {
                       if (!meets_pins(analysis, shape.pins, p)) return;
                       PlanBody candidate = builder.build(p);
                       if (!fits_memory(candidate) ||
                           candidate.prediction.objective_ns >= plan.prediction.objective_ns)
                           return;
                       plan = std::move(candidate);
                       placement = p;
                       gained = true;
                   });
    return gained;
}

}  // namespace cleave::planner
