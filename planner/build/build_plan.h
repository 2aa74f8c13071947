// SPDX-License-Identifier: Apache-2.0
// A placement made explicit and scored: steps, tiles, buffers, times. Search, baselines and brute
// force in tests are all measured by it. In: a request, its Analysis, and placements, one after the
// other. Out: a PlanBody for each, which has no copy of the graph or the machine.
#pragma once

#include <vector>

#include "planner/analysis/analysis.h"
#include "planner/build/placement.h"
#include "planner/plan/plan.h"

namespace cleave::planner {

// One thread at a time. Keeps `analysis`, which the caller owns.
class PlanBuilder {
public:
    // The KV dtype is settled. `request.graph` is the graph of the analysis, or equal to it.
    PlanBuilder(const Analysis& analysis, PlanRequest request)
        : analysis_(analysis), draft_{std::move(request), {}} {}

    // UserError for a launch that no tile brings within its device's limits. A plan that lacks
    // memory is refused for that, with what would fit: its limits are not looked at, and it has no
    // times.
    PlanBody build(const Placement& placement);
    // Whether it has room in every device's memory and launches within the limits. No times, so
    // faster than build().
    bool fits(const Placement& placement);
    const PlanRequest& request() const { return draft_; }

private:
    void build_memory(const Placement& placement);

    const Analysis& analysis_;
    Plan draft_;  // the request, and the body in work
};

bool fits_memory(const PlanBody& plan);

}  // namespace cleave::planner
