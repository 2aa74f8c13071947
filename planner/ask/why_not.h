// SPDX-License-Identifier: Apache-2.0
// Why the plan is not another one: that one planned, with its difference, or the rule that forbids
// it. WHAT: "tp=8", "pp=4", both as "tp=4,pp=2", "replicas=2", a device that the plan leaves
// unused, or a pin "layers.0-9=cuda[1]".
#pragma once

#include <optional>
#include <string>

#include "planner/ask/case.h"
#include "planner/ask/figures.h"

namespace cleave::planner {

enum class Verdict : uint8_t {
    kSame,       // the plan has it
    kWorse,      // possible, and slower or no better
    kBetter,     // possible, and better by its figure: why it was not taken is in the answer
    kNoMemory,   // it does not fit
    kForbidden,  // a rule of the planner
};
std::string_view verdict_name(Verdict verdict);

struct WhyNotAnswer {
    std::string what;
    std::string answer;
    Verdict verdict = Verdict::kWorse;
    Figures plan;
    std::optional<Figures> forced;
    double slower = 0;  // than the plan: 0.02 is 2 %
    Outcome outcome;    // the forced plan, or the refusal
};

// `asked` is what `plan` was made of. UserError for a WHAT that says nothing that could be forced.
WhyNotAnswer why_not(const Plan& plan, const Case& asked, const std::string& what);

}  // namespace cleave::planner
