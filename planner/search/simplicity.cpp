// SPDX-License-Identifier: Apache-2.0
#include "planner/search/simplicity.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "planner/plan/used_devices.h"

namespace cleave::planner {
namespace {

constexpr double kIrregular = 0.03, kManyStages = 0.01, kTwiceTheDevices = 0.02;

// The layers that a stage touches.
struct Layers {
    int first = 0, last = -1;
};

Layers layers_of(const Analysis& a, const StageChoice& stage) {
    Layers layers{-1, -2};
    for (const Unit& unit : a.units) {
        if (unit.begin < stage.begin || unit.end > stage.end || unit.first_layer < 0) continue;
        if (layers.first < 0) layers.first = unit.first_layer;
        layers.last = unit.last_layer;
    }
    return layers;
}

bool share_a_layer(const Layers& before, const Layers& next) {
    return before.first <= before.last && next.first == before.last;
}

// Stages of one width, by their devices and layers. A graph without layers has nothing to cut.
bool regular(const std::vector<size_t>& widths, const std::vector<Layers>& layers) {
    const auto has_layers = [](const Layers& l) { return l.first <= l.last; };
    for (size_t s = 1; s < widths.size(); ++s)
        if (widths[s] != widths[0] || share_a_layer(layers[s - 1], layers[s])) return false;
    return std::ranges::all_of(layers, has_layers) || std::ranges::none_of(layers, has_layers);
}

}  // namespace

double hardship(size_t num_stages, bool regular) {
    const double stages = static_cast<double>(std::max<size_t>(1, num_stages));
    return 1 + (regular ? 0 : kIrregular) + kManyStages * (1 - 1 / stages);
}

double hardship(std::span<const Stage> stages) {
    std::vector<size_t> widths;
    std::vector<Layers> layers;
    for (const Stage& s : stages) {
        widths.push_back(s.devices.size());
        layers.push_back({s.first_layer, s.last_layer});
    }
    return hardship(stages.size(), regular(widths, layers));
}

double cost_of_devices(size_t devices, Objective objective) {
    const ObjectiveRow& row = row_of(objective);
    if (row.serves || row.fewest_devices || devices < 2) return 1;
    return std::pow(1 + kTwiceTheDevices, std::log2(static_cast<double>(devices)));
}

bool loses_by_devices(int64_t ns, size_t devices, int64_t other_ns, size_t other_devices,
                      Objective objective) {
    return ns < other_ns && weighed_ns(ns, cost_of_devices(devices, objective)) >=
                                weighed_ns(other_ns, cost_of_devices(other_devices, objective));
}

int64_t weighed_ns(int64_t objective_ns, double hardship) {
    return std::llround(static_cast<double>(objective_ns) * hardship);
}

int64_t weighed_ns(const PlanBody& plan, Objective objective) {
    return weighed_ns(
        plan.prediction.objective_ns,
        hardship(plan.stages) * cost_of_devices(used_devices(plan).size(), objective));
}

Limits limits_of(const PlanOptions& options) { return {options.max_ttft_ns, options.max_tpot_ns}; }

double excess(const Limits& limits, const Serving& s) {
    const auto over = [](int64_t ns, int64_t limit) {
        return limit == 0 || ns <= limit
                   ? 0
                   : static_cast<double>(ns - limit) / static_cast<double>(limit);
    };
    return std::max(over(s.ttft_ns, limits.ttft_ns), over(s.tpot_ns, limits.tpot_ns));
}

bool is_better(const PlanBody& a, const PlanBody& b, Objective objective, const Limits& limits) {
    const auto key = [&](const PlanBody& plan) {
        return std::pair(excess(limits, plan.prediction.serving), weighed_ns(plan, objective));
    };
    return key(a) < key(b);
}

bool cuts_a_layer(const Analysis& analysis, const Placement& placement) {
    for (size_t s = 1; s < placement.stages.size(); ++s)
        if (share_a_layer(layers_of(analysis, placement.stages[s - 1]),
                          layers_of(analysis, placement.stages[s])))
            return true;
    return false;
}

bool is_regular(const Analysis& analysis, const Placement& placement) {
    std::vector<size_t> widths;
    std::vector<Layers> layers;
    for (const StageChoice& s : placement.stages) {
        widths.push_back(s.devices.size());
        layers.push_back(layers_of(analysis, s));
    }
    return regular(widths, layers);
}

}  // namespace cleave::planner
