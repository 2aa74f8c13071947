// SPDX-License-Identifier: Apache-2.0
#include "planner/search/candidates.h"

#include <algorithm>
#include <utility>

#include "planner/search/simplicity.h"

namespace cleave::planner {
namespace {

constexpr size_t kFewCandidates = 3, kManyCandidates = 64;
// Where none has fitted after so many steps, the others would not.
constexpr size_t kHopeless = 10 * kStepBudget;

}  // namespace

Candidates build_candidates(const Proposals& proposals, PlanBuilder& builder) {
    const bool fewest_devices = row_of(builder.request().options.objective).fewest_devices;
    Candidates c;
    for (const Proposal& p : proposals.found) {
        const Proposal& first = proposals.found.front();
        const bool small = c.steps < kStepBudget / 2;
        const bool close =
            fewest_devices
                ? p.devices_used <= first.devices_used
                : p.estimate_ns <= first.estimate_ns + first.estimate_ns / (small ? 1 : 8);
        const bool affordable = c.built.size() < kFewCandidates ||
                                (c.steps < kStepBudget && c.built.size() < kManyCandidates);
        if (c.any_fits && (!close || !affordable)) {
            c.estimated.push_back({&p, p.estimate_ns, false, ""});
            continue;
        }
        if (!c.any_fits && c.steps >= kHopeless) break;
        PlanBody plan = builder.build(p.placement);
        c.steps += num_steps(plan);
        const bool fits = fits_memory(plan);
        c.built.push_back({&p, fits ? plan.prediction.objective_ns : p.estimate_ns, fits,
                           fits ? "" : "does not fit in memory"});
        c.any_fits = c.any_fits || fits;
        if (!fits) continue;
        const size_t best = best_candidate(c, builder.request().options.objective);
        if (best + 1 == c.built.size()) c.best = std::move(plan);
    }
    return c;
}

size_t best_candidate(const Candidates& candidates, Objective objective) {
    const std::vector<Scored>& built = candidates.built;
    auto devices = [&](const Scored& s) {
        return row_of(objective).fewest_devices ? s.proposal->devices_used : 0;
    };
    const auto weighed = [](const Scored& s) {
        return weighed_ns(s.objective_ns, s.proposal->hardship);
    };
    int64_t best = INT64_MAX;
    int fewest = INT32_MAX;
    for (const Scored& s : built)
        if (s.refused.empty()) fewest = std::min(fewest, devices(s));
    auto eligible = [&](const Scored& s) { return s.refused.empty() && devices(s) == fewest; };
    for (const Scored& s : built)
        if (eligible(s)) best = std::min(best, weighed(s));
    size_t taken = built.size();
    for (size_t i = 0; i < built.size(); ++i)
        if (eligible(built[i]) && weighed(built[i]) == best)
            if (taken == built.size() ||
                balance_of(*built[i].proposal) < balance_of(*built[taken].proposal))
                taken = i;
    return taken;
}

std::vector<Scored> ranking(const Candidates& candidates) {
    std::vector<Scored> all = candidates.built;
    all.insert(all.end(), candidates.estimated.begin(), candidates.estimated.end());
    std::stable_sort(all.begin(), all.end(), [](const Scored& a, const Scored& b) {
        return a.objective_ns < b.objective_ns;
    });
    return all;
}

size_t num_steps(const PlanBody& plan) {
    return plan.prefill.steps.size() + plan.decode.steps.size();
}

}  // namespace cleave::planner
