// SPDX-License-Identifier: Apache-2.0
// What `cleave plan --serve` and `cleave run --serve-trace` share: their flags, and how a trace was
// served, as text or JSON.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "planner/plan/plan.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/serve_report.h"
#include "runtime/engine/serve_trace.h"

namespace cleave::tools {

struct ServeFlags {
    std::string trace;  // TRACE.csv, or rate=R,prompt=P,output=O
    bool overcommit = false;
    double pass_ms = 0;  // 0: passes as large as the plan has room for
};

// `name` is that of the option with the trace.
void add_serve_flags(CLI::App& app, ServeFlags& flags, const std::string& name,
                     const std::string& does);

// UserError naming the flag that needs the trace of option `name`, which was not given.
void check_serve_flags(const ServeFlags& flags, const std::string& name);

// UserError naming the option.
std::vector<runtime::TraceRequest> trace_from_flag(const ServeFlags& flags,
                                                   const std::string& name);

// Groups are left open. UserError for a model without a KV cache, and for a --pass-ms that has no
// room for a token of each sequence.
runtime::SchedulerOptions scheduler_options(const ServeFlags& flags, const planner::Plan& plan);

// Prints on standard output.
void show_forecast(const planner::Plan& plan, const runtime::ServeReport& predicted, bool json);
void show_replay(const planner::Plan& plan, const runtime::ServeReport& predicted,
                 const runtime::ServeReport& measured, bool json);

}  // namespace cleave::tools
