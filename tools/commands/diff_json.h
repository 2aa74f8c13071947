// SPDX-License-Identifier: Apache-2.0
// A difference of two plans as `diff` and `what-if` show it (tools/schema/diff.schema.json).
#pragma once

#include <string>

#include "planner/ask/diff.h"
#include "tools/commands/questions.h"

namespace cleave::tools {

Json diff_json(const planner::PlanDiff& diff);
// Of that: its devices as rows of a table, with the networks' words of both plans in each.
Json device_rows(const Json& difference);
// Tables of figures, of what was asked, of what moved, and of devices.
void show_diff(const planner::PlanDiff& diff, const std::string& a, const std::string& b);

}  // namespace cleave::tools
