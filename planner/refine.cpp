// SPDX-License-Identifier: Apache-2.0
#include "planner/refine.h"

#include <algorithm>

#include "planner/evaluate.h"

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
    const Device& x = machine.device(a.devices[0]);
    const Device& y = machine.device(b.devices[0]);
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
    all.insert(all.end(), right.devices.begin(), right.devices.end());
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

std::vector<Placement> neighbours(const Analysis& a, const Machine& machine, Shape shape,
                                  const Placement& p) {
    std::vector<Placement> moves;
    bool open = shape.tensor_parallel == 0 && shape.pipeline_stages == 0;
    for (const importer::Op& op : a.graph.ops) open = open && op.kind != importer::OpKind::kOpaque;
    for (size_t s = 0; s + 1 < p.stages.size(); ++s) {
        add_cut_moves(a, p, s, moves);
        if (open) add_device_moves(machine, p, s, moves);
    }
    for (size_t s = 0; s < p.stages.size(); ++s) {
        if (p.stages[s].devices.size() < 2) continue;
        moves.push_back(p);
        moves.back().stages[s].shares.whole_groups = !p.stages[s].shares.whole_groups;
    }
    return moves;
}

}  // namespace

bool refine(const Analysis& analysis, Shape shape, size_t step_budget, Placement& placement,
            Plan& plan) {
    bool gained = false;
    size_t steps = 0;
    for (bool better = true; better && steps < step_budget;) {
        better = false;
        for (Placement& move : neighbours(analysis, plan.machine, shape, placement)) {
            if (steps >= step_budget) break;
            if (!meets_pins(analysis, shape.pins, move)) continue;
            Plan candidate;
            candidate.graph = std::move(plan.graph);
            candidate.machine = plan.machine;
            candidate.workload = plan.workload;
            candidate.options = plan.options;
            build_placement(analysis, move, candidate);
            steps += candidate.prefill.steps.size() + candidate.decode.steps.size();
            bool taken = fits_memory(candidate) &&
                         candidate.prediction.objective_ns < plan.prediction.objective_ns;
            if (!taken) {
                plan.graph = std::move(candidate.graph);
                continue;
            }
            plan = std::move(candidate);
            placement = std::move(move);
            better = gained = true;
            break;
        }
    }
    return gained;
}

}  // namespace cleave::planner
