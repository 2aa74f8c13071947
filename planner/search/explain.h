// SPDX-License-Identifier: Apache-2.0
// Fills Plan::why from what the search saw: the binding constraint, the runner-up shapes with their
// costs, the cost of each cut, what METIS brought, and why a device stays unused. Numbers come from
// the plan's own steps.
#pragma once

#include <optional>

#include "planner/search/propose.h"

namespace cleave::planner {

// A proposal after its plan was built and simulated (or only estimated, when it was clearly worse).
struct Scored {
    const Proposal* proposal = nullptr;
    int64_t objective_ns = 0;
    bool simulated = false;
    std::string refused;  // why it cannot be used: memory
};

void explain(const Analysis& analysis, const Proposals& proposals,
             const std::vector<Scored>& scored, const Scored& chosen, Plan& plan);

}  // namespace cleave::planner
