// SPDX-License-Identifier: Apache-2.0
// `plan --pareto`: tokens/s a device against tokens/s a user, as a table, as JSON
// (tools/schema/pareto.schema.json) and CSV.
#pragma once

#include <string>

#include "planner/ask/pareto.h"
#include "tools/commands/questions.h"

namespace cleave::tools {

// Progress on a terminal. UserError where no part of the machine serves a user.
planner::Pareto run_pareto(const QuestionFlags& flags);

Json pareto_json(const planner::Pareto& pareto);
std::string pareto_csv(const planner::Pareto& pareto);
void show_pareto(const planner::Pareto& pareto);

}  // namespace cleave::tools
