// SPDX-License-Identifier: Apache-2.0
#include "planner/search/simplicity.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "planner/plan/used_devices.h"

namespace cleave::planner {
namespace {

constexpr double kCutsALayer = 0.03, kUneven = 0.03, kManyStages = 0.01;
constexpr double kTwiceTheDevices = 0.02;

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

// What decides how hard a stage is to run.
struct Form {
    size_t width = 0;
    Layers layers;
};

bool share_a_layer(const Layers& before, const Layers& next) {
    return before.first <= before.last && next.first == before.last;
}

bool cuts_a_layer(const std::vector<Form>& stages) {
    return std::ranges::adjacent_find(stages, [](const Form& before, const Form& next) {
               return share_a_layer(before.layers, next.layers);
           }) != stages.end();
}

// One width, and layers in each; a graph without layers has nothing to cut.
bool are_alike(const std::vector<Form>& stages) {
    const auto has_layers = [](const Form& s) { return s.layers.first <= s.layers.last; };
    return std::ranges::all_of(stages, [&](const Form& s) {
        return s.width == stages[0].width && has_layers(s) == has_layers(stages[0]);
    });
}

std::vector<Form> forms_of(const Analysis& analysis, const Placement& placement) {
    std::vector<Form> forms;
    for (const StageChoice& s : placement.stages)
        forms.push_back({s.devices.size(), layers_of(analysis, s)});
    return forms;
}

double hardship(const std::vector<Form>& stages) {
    return 1 + (cuts_a_layer(stages) ? kCutsALayer : 0) + (are_alike(stages) ? 0 : kUneven) +
           kManyStages * (1 - 1 / static_cast<double>(std::max<size_t>(1, stages.size())));
}

}  // namespace

double hardship(std::span<const Stage> stages) {
    std::vector<Form> forms;
    for (const Stage& s : stages)
        forms.push_back({s.devices.size(), {s.first_layer, s.last_layer}});
    return hardship(forms);
}

double hardship(const Analysis& analysis, const Placement& placement) {
    return hardship(forms_of(analysis, placement));
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
    return cuts_a_layer(forms_of(analysis, placement));
}

}  // namespace cleave::planner
