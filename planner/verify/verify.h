// SPDX-License-Identifier: Apache-2.0
// Proves a plan sound, with no code of the search: its own rules for how operators split, its own
// memory account. Used on every plan before anything loads, and on plans read from files.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"

namespace cleave::planner {

struct Violation {
    std::string rule;     // "operand-not-ready", "live-overlap", ...: planner/verify/README.md
    std::string message;  // names the step, the value and the device
};

// Every violation found, empty for a sound plan. Never throws on a malformed plan.
std::vector<Violation> find_violations(const Plan& plan);

// Throws UserError listing the first violations when there are any.
void verify_plan(const Plan& plan);

}  // namespace cleave::planner
