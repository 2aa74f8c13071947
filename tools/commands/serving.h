// SPDX-License-Identifier: Apache-2.0
// What commands over an engine share: the flags of `cleave plan --serve` and `cleave run
// --serve-trace`, how a trace was served, as text or JSON, and a session as `cleave serve` and
// `cleave chat` open it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "planner/plan/plan.h"
#include "runtime/engine/scheduler.h"
#include "runtime/engine/serve_report.h"
#include "runtime/engine/serve_trace.h"
#include "runtime/session/session.h"
#include "tools/cli/model_source.h"
#include "tools/cli/options.h"

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

// Kernels compiled and weights loaded, with progress on a terminal. Ctrl-C ends it.
std::unique_ptr<runtime::Session> open_session(planner::Plan& plan, const RunFlags& flags,
                                               runtime::Drivers& drivers);

// UserError for a shape name, a plan of one, and --weights none: `does` ("serve") needs weights.
void check_has_weights(const LoadedModel& model, const ModelFlags& flags, const std::string& does);

// Prints on standard output.
void show_forecast(const planner::Plan& plan, const runtime::ServeReport& predicted, bool json);
void show_replay(const planner::Plan& plan, const runtime::ServeReport& predicted,
                 const runtime::ServeReport& measured, bool json);

}  // namespace cleave::tools
