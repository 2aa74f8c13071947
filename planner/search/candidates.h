// SPDX-License-Identifier: Apache-2.0
// In: proposals by estimate. Out: the most promising ones built in full and scored by the event
// simulation, so that what is chosen is what runs; and the one to take.
#pragma once

#include <string>
#include <vector>

#include "planner/build/build_plan.h"
#include "planner/search/propose.h"

namespace cleave::planner {

// Steps that the search may build in all, but for the first few candidates: small plans afford
// many.
inline constexpr size_t kStepBudget = 16'000;

// A proposal after its plan was built and simulated, or only estimated where it was clearly worse.
struct Scored {
    const Proposal* proposal = nullptr;
    int64_t objective_ns = 0;
    bool simulated = false;
    std::string refused;  // why it cannot be used: memory
};

struct Candidates {
    std::vector<Scored> built, estimated;  // refer to the proposals
    PlanBody best;                         // of best_candidate
    size_t steps = 0;                      // in all plans
    bool any_fits = false;
};

Candidates build_candidates(const Proposals& proposals, PlanBuilder& builder);

// The position in `built` of the candidate to take: the best score by hardship; of equal ones the
// most balanced, which leaves most memory and throughput. Where the objective is fewest devices,
// those come first.
size_t best_candidate(const Candidates& candidates, Objective objective);

// All that was scored, best first, for explain().
std::vector<Scored> ranking(const Candidates& candidates);

size_t num_steps(const PlanBody& plan);

}  // namespace cleave::planner
