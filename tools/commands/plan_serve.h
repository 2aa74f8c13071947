// SPDX-License-Identifier: Apache-2.0
// `cleave plan --serve`: how a plan would serve a trace, as text or JSON.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/engine/serve_trace.h"

namespace cleave::tools {

// TRACE.csv, or rate=R,prompt=P,output=O. UserError naming --serve.
std::vector<runtime::TraceRequest> trace_from_flag(const std::string& flag);

// Prints the forecast on standard output. UserError for a model without a KV cache.
void show_forecast(const planner::Plan& plan, const std::vector<runtime::TraceRequest>& trace,
                   bool overcommit, bool json);

}  // namespace cleave::tools
