// SPDX-License-Identifier: Apache-2.0
// `plan --sweep`: a grid of requests as a table, as JSON (tools/schema/sweep.schema.json) and CSV.
#pragma once

#include <string>
#include <vector>

#include "planner/ask/sweep.h"
#include "tools/commands/questions.h"

namespace cleave::tools {

// "batch=1,16,64" each.
std::vector<planner::SweepAxis> axes_from_flags(const std::vector<std::string>& axes);

// Every row planned; progress on a terminal.
planner::Sweep run_sweep(const QuestionFlags& flags, const std::vector<planner::SweepAxis>& axes);

Json sweep_json(const planner::Sweep& sweep);
std::string sweep_csv(const planner::Sweep& sweep);
void show_sweep(const planner::Sweep& sweep);

}  // namespace cleave::tools
