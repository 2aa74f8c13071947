// SPDX-License-Identifier: Apache-2.0
// Fills Plan::why from what the search saw: the binding constraint, the runner-up shapes with their
// costs, the cost of each cut, what METIS brought, and why a device stays unused. Numbers come from
// the plan's own steps.
#pragma once

#include <string>
#include <vector>

#include "planner/search/candidates.h"

namespace cleave::planner {

// `proposals`: of each pass of the search.
void explain(const Analysis& analysis, const std::vector<const Proposals*>& proposals,
             const std::vector<Scored>& scored, const Scored& chosen, Plan& plan);

// Adds what the other way to cut heads would cost, where there is one: whole KV groups, or between
// query heads.
void compare_heads(PlanBuilder& builder, Placement placement, Plan& plan);

// Of a plan that may have replicas: devices of none, and what the best plans of other numbers of
// replicas score. `scored` has the plan itself at `chosen`.
struct ScoredReplicas {
    std::string shape;  // "tp 4 x pp 1 in 2 replicas"
    int64_t objective_ns = 0;
    double tokens_per_second = 0;
    int64_t ttft_ns = 0;
};
void explain_replicas(std::vector<ScoredReplicas> scored, size_t chosen,
                      const std::vector<std::string>& spare, Plan& plan);

}  // namespace cleave::planner
