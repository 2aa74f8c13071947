// SPDX-License-Identifier: Apache-2.0
// Of a plan whose shape was forced: what the other shapes would score, for Plan::why. The search
// saw only the forced one, so each uniform grid over the devices is proposed, built and simulated
// here. Where the shape is open, the search's own candidates say it (planner/search/explain.h).
#pragma once

#include <string>
#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

void shapes_beside(const Analysis& analysis, Plan& plan);

// Every tp x pp that uses so many devices, tp falling: "tp 8 x pp 1", "tp 4 x pp 2", ...
struct ShapeGrid {
    int tensor_parallel = 1, pipeline_stages = 1;
    std::string name() const;
};
std::vector<ShapeGrid> grids(int devices);

}  // namespace cleave::planner
