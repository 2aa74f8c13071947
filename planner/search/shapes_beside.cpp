// SPDX-License-Identifier: Apache-2.0
#include "planner/search/shapes_beside.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/build/build_plan.h"
#include "planner/search/check_options.h"
#include "planner/search/propose.h"
#include "runtime/base/errors.h"

namespace cleave::planner {
namespace {

constexpr size_t kMostShapes = 6, kBuilt = 3;  // of each, the best by estimate until one fits

RunnerUp runner_up(const Analysis& analysis, const Plan& plan, const ShapeGrid& grid) {
    RunnerUp other{grid.name(), 0, "does not fit in memory"};
    PlanRequest request = plan;
    request.options.tensor_parallel = grid.tensor_parallel;
    request.options.pipeline_stages = grid.pipeline_stages;
    Shape shape;
    try {
        shape = check_options(analysis, request.machine, request.workload, request.options);
    } catch (const UserError&) {
        other.why_not = "not possible for this model, or with these pins";
        return other;
    }
    const Proposals proposals =
        propose(analysis, request.machine, request.workload, request.options, shape, 0);
    PlanBuilder builder(analysis, std::move(request));
    for (size_t i = 0; i < std::min(kBuilt, proposals.found.size()); ++i) {
        const PlanBody body = builder.build(proposals.found[i].placement);
        if (!fits_memory(body)) continue;
        const double ratio =
            static_cast<double>(body.prediction.objective_ns) /
            static_cast<double>(std::max<int64_t>(1, plan.prediction.objective_ns));
        other.objective_ns = body.prediction.objective_ns;
        other.why_not = fmt::format("{:.1f} % {}; the shape was forced", 100 * std::abs(ratio - 1),
                                    ratio < 1 ? "faster" : "slower");
        break;
    }
    return other;
}

}  // namespace

std::string ShapeGrid::name() const {
    return fmt::format("tp {} x pp {}", tensor_parallel, pipeline_stages);
}

std::vector<ShapeGrid> grids(int devices) {
    std::vector<ShapeGrid> all;
    for (int tp = devices; tp >= 1; --tp)
        if (devices % tp == 0) all.push_back({tp, devices / tp});
    return all;
}

void shapes_beside(const Analysis& analysis, Plan& plan) {
    const PlanOptions& forced = plan.options;
    if (forced.tensor_parallel == 0 && forced.pipeline_stages == 0) return;
    const auto width = static_cast<int>(plan.stages.front().devices.size());
    std::vector<ShapeGrid> others = grids(static_cast<int>(plan.machine.devices.size()));
    std::erase_if(others, [&](const ShapeGrid& g) {
        return g.tensor_parallel == width && g.pipeline_stages == std::ssize(plan.stages);
    });
    // Of many, those whose width is nearest.
    std::ranges::stable_sort(others, {}, [&](const ShapeGrid& g) {
        return std::abs(std::log2(static_cast<double>(g.tensor_parallel) / width));
    });
    if (others.size() > kMostShapes) others.resize(kMostShapes);
    std::vector<RunnerUp> found;
    for (const ShapeGrid& grid : others) found.push_back(runner_up(analysis, plan, grid));
    std::ranges::stable_sort(found, {}, [](const RunnerUp& r) {
        return std::pair(r.objective_ns == 0, r.objective_ns);
    });
    // What there is already is of the forced shape itself: other cuts of it.
    std::vector<RunnerUp>& all = plan.why.runners_up;
    std::erase_if(all, [&](const RunnerUp& r) { return r.shape.starts_with("tp "); });
    all.insert(all.begin(), std::make_move_iterator(found.begin()),
               std::make_move_iterator(found.end()));
}

}  // namespace cleave::planner
