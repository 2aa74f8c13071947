// SPDX-License-Identifier: Apache-2.0
// The list of steps of a plan's JSON, written as text: a plan of hundreds of devices has a hundred
// thousand of them, and a tree of JSON values over all takes longer than the plan. In: a sound
// plan. Out: what nlohmann's dump(2) gives for the same list one level deep; strings and their
// escapes are nlohmann's.
#pragma once

#include <string>

#include "planner/plan/plan.h"

namespace cleave::planner {

// Appends the array, prefill's steps before decode's.
void append_json_steps(const Plan& plan, std::string& out);

}  // namespace cleave::planner
