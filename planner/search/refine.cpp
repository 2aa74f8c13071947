// SPDX-License-Identifier: Apache-2.0
#include "planner/search/refine.h"

#include <algorithm>
#include <utility>

#include "planner/plan/foreign_op.h"
#include "planner/search/candidates.h"
#include "planner/search/device_moves.h"
#include "planner/search/simplicity.h"

namespace cleave::planner {
namespace {

int unit_at(const Analysis& a, int group) {
    for (size_t u = 0; u < a.units.size(); ++u)
        if (a.units[u].begin == group) return static_cast<int>(u);
    return static_cast<int>(a.units.size());
}

bool equal_shares(const StageChoice& stage) {
    return std::all_of(stage.shares.weights.begin(), stage.shares.weights.end(),
                       [](int64_t w) { return w == 1; });
}

// Whether devices may change between the two without new shares.
bool alike(const Machine& machine, const StageChoice& a, const StageChoice& b) {
    const DeviceInfo& x = machine.device(a.devices[0]);
    const DeviceInfo& y = machine.device(b.devices[0]);
    return equal_shares(a) && equal_shares(b) && x.kind == y.kind && x.model == y.model &&
           x.memory_bytes == y.memory_bytes && x.memory_bandwidth == y.memory_bandwidth;
}

void set_devices(StageChoice& stage, std::vector<DeviceId> devices) {
    stage.shares.weights.assign(devices.size(), 1);
    stage.devices = std::move(devices);
}

void add_cut_moves(const Analysis& a, const Placement& p, size_t s, std::vector<Placement>& moves) {
    int cut = unit_at(a, p.stages[s].end);
    for (int to : {cut - 1, cut + 1}) {
        if (to <= unit_at(a, p.stages[s].begin) || to >= unit_at(a, p.stages[s + 1].end)) continue;
        Placement moved = p;
        moved.stages[s].end = moved.stages[s + 1].begin = a.units[to].begin;
        moves.push_back(std::move(moved));
    }
}

void add_device_moves(const Machine& machine, const Placement& p, size_t s,
                      std::vector<Placement>& moves) {
    const StageChoice &left = p.stages[s], &right = p.stages[s + 1];
    if (!alike(machine, left, right)) return;
    std::vector<DeviceId> all = left.devices;
    for (DeviceId d : right.devices) {
        if (std::find(all.begin(), all.end(), d) != all.end()) return;  // devices that return
        all.push_back(d);
    }
    Placement joined = p;
    joined.stages[s].end = right.end;
    set_devices(joined.stages[s], all);
    joined.stages.erase(joined.stages.begin() + static_cast<std::ptrdiff_t>(s) + 1);
    moves.push_back(std::move(joined));
    for (size_t split : {left.devices.size() - 1, left.devices.size() + 1}) {
        if (split == 0 || split >= all.size()) continue;
        Placement moved = p;
        auto middle = all.begin() + static_cast<std::ptrdiff_t>(split);
        set_devices(moved.stages[s], {all.begin(), middle});
        set_devices(moved.stages[s + 1], {middle, all.end()});
        moves.push_back(std::move(moved));
    }
}

// Whether stages may get other devices: no shape is given, and operators may be split.
bool is_open(const Analysis& a, const Shape& shape) {
    return shape.tensor_parallel == 0 && shape.pipeline_stages == 0 &&
           std::none_of(a.graph.ops.begin(), a.graph.ops.end(), stays_on_one_device);
}

std::vector<Placement> neighbours(const Analysis& a, const PlanRequest& request, bool open,
                                  const Placement& p) {
    std::vector<Placement> moves;
    for (size_t s = 0; s + 1 < p.stages.size(); ++s) {
        add_cut_moves(a, p, s, moves);
        if (open) add_device_moves(request.machine, p, s, moves);
    }
    for (size_t s = 0; s < p.stages.size(); ++s) {
        if (p.stages[s].devices.size() < 2) continue;
        moves.push_back(p);
        moves.back().stages[s].shares.whole_groups = !p.stages[s].shares.whole_groups;
    }
    return moves;
}

}  // namespace

bool refine(const Analysis& analysis, const Shape& shape, const Limits& limits, size_t step_budget,
            PlanBuilder& builder, Placement& placement, PlanBody& plan) {
    const PlanRequest& request = builder.request();
    const Objective objective = request.options.objective;
    const bool open = is_open(analysis, shape);
    size_t steps = 0;
    bool improved = false;
    // Takes it where it gains; false where no more is wanted: the first that gains is taken.
    const auto takes_more = [&](Placement move) {
        if (steps >= step_budget) return false;
        if (!meets_pins(analysis, shape.pins, move) ||
            (request.options.whole_layers && cuts_a_layer(analysis, move)))
            return true;
        PlanBody candidate = builder.build(move);
        steps += num_steps(candidate);
        if (!fits_memory(candidate) || !is_better(candidate, plan, objective, limits)) return true;
        plan = std::move(candidate);
        placement = std::move(move);
        improved = true;
        return false;
    };
    const auto improve = [&] {
        improved = false;
        for (Placement& move : neighbours(analysis, request, open, placement))
            if (!takes_more(std::move(move))) break;
        if (open && !improved) device_moves(analysis, request, placement, takes_more);
        return improved;
    };
    bool gained = false;
    while (improve()) gained = true;
    return gained;
}

}  // namespace cleave::planner
