// SPDX-License-Identifier: Apache-2.0
#include "planner/verify/verify.h"

#include <algorithm>

#include "planner/verify/report.h"
#include "runtime/base/errors.h"

namespace cleave::planner {

std::vector<Violation> find_violations(const Plan& plan) {
    verify::Report report;
    if (!verify::check_indices(plan, report)) return report.take();
    verify::check_placement(plan, report);
    verify::PhaseTrace prefill = verify::check_steps(plan, true, report);
    verify::PhaseTrace decode = verify::check_steps(plan, false, report);
    verify::check_coverage(plan, true, prefill, report);
    verify::check_coverage(plan, false, decode, report);
    verify::check_phases_agree(plan, prefill, decode, report);
    verify::check_liveness(plan, true, prefill, report);
    verify::check_liveness(plan, false, decode, report);
    verify::check_account(plan, report);
    verify::check_serving(plan, report);
    return report.take();
}

void verify_plan(const Plan& plan) {
    constexpr size_t kShown = 8;
    std::vector<Violation> violations = find_violations(plan);
    if (violations.empty()) return;
    std::string text = fmt::format("the plan is not sound ({} violation{}):", violations.size(),
                                   violations.size() == 1 ? "" : "s");
    for (size_t i = 0; i < std::min(kShown, violations.size()); ++i)
        text += fmt::format("\n  {}: {}", violations[i].rule, violations[i].message);
    if (violations.size() > kShown)
        text += fmt::format("\n  and {} more", violations.size() - kShown);
    throw UserError("{}\nPlan again from the model with $save_plan", text);
}

}  // namespace cleave::planner
