// SPDX-License-Identifier: Apache-2.0
// In: proposals by estimate. Out: the most promising ones built in full and scored by the event
// simulation, so that what is chosen is what runs; and the one to take.
#pragma once

#include <string>
#include <vector>

#include "planner/build/build_plan.h"
#include "planner/search/propose.h"
#include "planner/search/simplicity.h"

namespace cleave::planner {

// Steps that a pass of the search may build from the first candidate that serves on, and refine
// after it; but for the first few candidates. Small plans afford many.
inline constexpr size_t kStepBudget = 16'000;
// And while nothing serves: the others would not, either.
inline constexpr size_t kHopeless = 10 * kStepBudget;

// A proposal after its plan was built and simulated, or only estimated where it was clearly worse,
// or another cut of it too slow for the limits.
struct Scored {
    const Proposal* proposal = nullptr;
    int64_t objective_ns = 0;
    bool simulated = false;
    std::string refused;  // why it cannot be used: memory, limits
    bool fits = true;
    double excess = 0;    // planner/search/simplicity.h
    int64_t ttft_ns = 0;  // of many users; 0: it was not built, or serves one
};

struct Candidates {
    std::vector<Scored> built, estimated;  // refer to the proposals
    PlanBody best;                         // of best_candidate
    size_t steps = 0;                      // in all plans
    size_t steps_since = 0;                // in the first that serves and those after it
    bool any_fits = false;
    bool any_serves = false;  // fits, and keeps the limits
};

// Builds until one fits and keeps the limits, or `most_steps` are built, and then what may be as
// good. Of a shape that is clearly too slow no other cut is built.
Candidates build_candidates(const Proposals& proposals, const Limits& limits, size_t most_steps,
                            PlanBuilder& builder);

// The position in `built` of the candidate to take: what keeps the limits, or comes
// nearest to them; then the best score by hardship; of equal ones the most balanced, which leaves
// most memory and throughput. Where the objective is fewest devices, those come before the score.
size_t best_candidate(const Candidates& candidates, Objective objective);

// Whether the best of `a` is to be taken rather than that of `b`.
bool is_better(const Candidates& a, const Candidates& b, Objective objective);

// Whether one that was built and does not fit is better, by its estimate, than the best that does,
// or nothing fits.
bool may_lack_memory_alone(const Candidates& candidates, Objective objective);

// Leaves out the proposals that promise no more than the best candidate, if there is one.
void drop_worse(const Candidates& candidates, Objective objective, Proposals& proposals);

size_t num_steps(const PlanBody& plan);

}  // namespace cleave::planner
