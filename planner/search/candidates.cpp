// SPDX-License-Identifier: Apache-2.0
#include "planner/search/candidates.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

namespace cleave::planner {
namespace {

constexpr size_t kFewCandidates = 3, kManyCandidates = 64;
// Another cut of a shape that is later than its limit by a greater part would be late, too.
constexpr double kHardlyLate = 0.05;
constexpr const char* kLate = "keeps a user waiting for longer than the limit";

// Of candidates that may be taken, the first in this order: less is better.
using Score = std::tuple<double, int, int64_t>;

Score score_of(const Scored& s, Objective objective) {
    return {s.excess, row_of(objective).fewest_devices ? s.proposal->devices_used : 0,
            weighed_ns(s.objective_ns, s.proposal->hardship)};
}

}  // namespace

Candidates build_candidates(const Proposals& proposals, const Limits& limits, size_t most_steps,
                            PlanBuilder& builder) {
    const Objective objective = builder.request().options.objective;
    const bool fewest_devices = row_of(objective).fewest_devices;
    Candidates c;
    const Proposal* first = nullptr;  // of those that may be taken
    size_t built_before = 0;          // it
    std::set<std::string_view> late;  // shapes
    for (const Proposal& p : proposals.found) {
        if (!first) first = &p;
        const bool small = c.steps_since < kStepBudget / 2;
        const bool close =
            fewest_devices
                ? p.devices_used <= first->devices_used
                : p.estimate_ns <= first->estimate_ns + first->estimate_ns / (small ? 1 : 8);
        const size_t built = c.built.size() - built_before;
        const bool affordable =
            built < kFewCandidates || (c.steps_since < kStepBudget && built < kManyCandidates);
        const bool is_late = late.contains(p.shape);
        if (is_late || (c.any_serves && (!close || !affordable))) {
            c.estimated.push_back({&p, p.estimate_ns, false, is_late ? kLate : ""});
            continue;
        }
        if (!c.any_serves && c.steps >= most_steps) break;
        PlanBody plan = builder.build(p.placement);
        c.steps += num_steps(plan);
        const bool fits = fits_memory(plan);
        const double over = fits ? excess(limits, plan.prediction.serving) : 0;
        const bool serves = fits && over == 0;
        if (over > kHardlyLate) late.insert(p.shape);
        if (serves && !c.any_serves) {
            first = &p;
            built_before = c.built.size();
        }
        c.built.push_back({&p, p.estimate_ns, fits, "", fits, over});
        Scored& scored = c.built.back();
        if (fits) scored.objective_ns = plan.prediction.objective_ns;
        if (fits) scored.ttft_ns = plan.prediction.serving.ttft_ns;
        if (!serves) scored.refused = fits ? kLate : "does not fit in memory";
        c.any_fits = c.any_fits || fits;
        c.any_serves = c.any_serves || serves;
        if (c.any_serves) c.steps_since += num_steps(plan);
        if (!fits) continue;
        const size_t best = best_candidate(c, objective);
        if (best + 1 == c.built.size()) c.best = std::move(plan);
    }
    return c;
}

size_t best_candidate(const Candidates& candidates, Objective objective) {
    const std::vector<Scored>& built = candidates.built;
    size_t taken = built.size();
    const auto key = [&](size_t i) {
        return std::pair(score_of(built[i], objective), balance_of(*built[i].proposal));
    };
    for (size_t i = 0; i < built.size(); ++i)
        if (built[i].fits && (taken == built.size() || key(i) < key(taken))) taken = i;
    return taken;
}

bool is_better(const Candidates& a, const Candidates& b, Objective objective) {
    if (!a.any_fits || !b.any_fits) return a.any_fits;
    return score_of(a.built[best_candidate(a, objective)], objective) <
           score_of(b.built[best_candidate(b, objective)], objective);
}

bool may_lack_memory_alone(const Candidates& candidates, Objective objective) {
    if (!candidates.any_fits) return !candidates.built.empty();
    const Scored& best = candidates.built[best_candidate(candidates, objective)];
    return std::ranges::any_of(candidates.built, [&](Scored other) {
        other.excess = best.excess;  // not known of what does not fit
        return !other.fits && score_of(other, objective) < score_of(best, objective);
    });
}

void drop_worse(const Candidates& candidates, Objective objective, Proposals& proposals) {
    if (!candidates.any_fits) return;
    const Score best = score_of(candidates.built[best_candidate(candidates, objective)], objective);
    std::erase_if(proposals.found, [&](const Proposal& p) {
        return score_of({&p, p.estimate_ns, false, ""}, objective) >= best;
    });
}

size_t num_steps(const PlanBody& plan) {
    return plan.prefill.steps.size() + plan.decode.steps.size();
}

}  // namespace cleave::planner
