// SPDX-License-Identifier: Apache-2.0
// Reads what `cleave run --trace FILE` wrote. In: the file, and the plan whose steps it should
// have. Out: the trace, with the sizes of its passes.
#pragma once

#include <string>

#include "planner/plan/plan.h"
#include "runtime/execute/trace.h"

namespace cleave::tools {

// UserError for a file that is no such trace, and for one of another plan: another model, other
// devices, other types, or other steps.
runtime::Trace read_trace(const std::string& path, const planner::Plan& plan);

}  // namespace cleave::tools
